"""The wheel's packages: those of the checkout, and the recipes and the MobileNetV3 project inside of the packages that use them."""

from setuptools import find_packages, setup

INSIDE = {  # package of the wheel -> folder of the checkout
    "alignment_doctor.pages": "docs/checks",
    "alignment_doctor.pages.zh": "docs/checks/zh",
    "mobilenetv3_common.configs": "configs",
    "mnv3.mobilenetv3": "projects/mobilenetv3",
    "mnv3.mobilenetv3.edits": "projects/mobilenetv3/edits",
    "mnv3.mobilenetv3.faults": "projects/mobilenetv3/faults",
}

setup(
    packages=[
        *find_packages(include=["alignment", "alignment.*", "alignment_doctor*", "mnv3*", "mobilenetv3_*"]),
        *INSIDE,
    ],
    package_dir=INSIDE,
)
