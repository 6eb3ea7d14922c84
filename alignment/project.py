"""What is aligned: a project, its two sides, and the models that both have.

A project is one Python file that defines ``PROJECT``. Only the models are needed; of the parts (data, metric, loss, train)
each side has those that it has, and the steps that need another part say that they were not run. A part is a Python module,
or any object, with the names that its protocol below asks for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Protocol

import numpy as np
from PIL import Image

from alignment.draws import Draws
from alignment.frameworks import advice_on, import_module
from alignment.frameworks.base import Framework, Module, Optimizer, Tensor
from alignment.raised import import_problem
from alignment.strangers import strangers
from alignment.witness import Witness
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import BatchPlan, RunPlan, SampleKey, SampleParams
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig, TrainConfig
from mobilenetv3_common.weights import State

Builder = Callable[..., Module]
PARTS = ("data", "metric", "loss", "train")


# --- the parts of a side ---------------------------------------------------------------------------------------------------


class Dataset(Protocol):
    """Samples of one split: pixels (float32 array or tensor (3, H, W)), label, key."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: SampleKey, /) -> tuple[Any, int, SampleKey]: ...


class DataPart(Protocol):
    """Pictures to batches."""

    def ImageDataset(self, index: DatasetIndex, preset: EvalPreset | TrainPreset, seed: int = 0, backend: str = "pil") -> Dataset:
        """The samples of a split under a preset; random parameters are drawn from (seed, epoch, picture)."""
        ...

    def build_loader(
        self, dataset: Any, plan: BatchPlan | RunPlan, num_workers: int = 0, mix_group: int | None = None
    ) -> Iterable[Sequence[Tensor]]:
        """Batches of one of its data sets in the plan's order: images (N, 3, H, W), labels (N,) or (N, classes), numbers (N,)."""
        ...

    def eval_transform(self, image: Image.Image, preset: EvalPreset) -> Any:
        """A picture as float32 (3, crop_size, crop_size), array or tensor."""
        ...

    def train_transform(self, image: Image.Image, preset: TrainPreset, params: SampleParams) -> Any:
        """The same for training, with drawn parameters."""
        ...


class Accuracy(Protocol):
    """Counts of right answers for several k."""

    correct: list[int]
    count: int

    def update(self, logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> None: ...
    def merge(self, other: Any) -> None: ...
    def compute(self) -> dict[str, float]: ...


class MetricPart(Protocol):
    """Top-k accuracy."""

    def top_k_correct(self, logits: Tensor, labels: Tensor, ks: Sequence[int]) -> Tensor:
        """Which of N samples have their label among the k largest logits: bool (N, len(ks))."""
        ...

    def TopKAccuracy(self, ks: Sequence[int] = (1, 5)) -> Accuracy:
        """An empty count."""
        ...


class LossPart(Protocol):
    """Cross-entropy.

    Step 4 compares class weights where both sides' classes take ``weight``, a number for each class; and distillation where both
    have a ``DistillationLoss(criterion, teacher, temperature, alpha)`` with ``look(pictures)``, called before the loss itself.
    """

    def CrossEntropyLoss(self, label_smoothing: float = 0.0, ignore_index: int = -100) -> Callable[..., Tensor]:
        """A function of logits (N, classes) and labels, int64 (N,) or rows of probabilities, that gives a scalar tensor."""
        ...


class TrainPart(Protocol):
    """Optimizers, schedules and the update: what step 5 needs."""

    def build_optimizer(self, model: Module, config: OptimizerConfig) -> Optimizer: ...
    def build_schedule(self, optimizer: Optimizer, config: ScheduleConfig) -> Any: ...

    def accumulate_gradients(self, model: Module, criterion: Callable, batches: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Leave the gradients of the mean loss of equal micro-batches on the parameters; returns that loss."""
        ...

    def apply_update(self, model: Module, optimizer: Optimizer, clip_norm: float | None = None) -> None:
        """Clip the gradients' global norm where asked, update the weights, clear the gradients."""
        ...


class Precision(Protocol):
    """Mixed precision in a training step, as ``mobilenetv3_common.parts.Precision`` and with what a step calls.

    A train part that has a class of this name, (level, dtype, device), has it compared in step 5 where a low precision is asked
    for; its ``accumulate_gradients`` and ``apply_update`` then take one as ``precision``.
    """

    @property
    def scales(self) -> bool:
        """Whether the loss is scaled."""
        ...

    def autocast(self) -> contextlib.AbstractContextManager[Any]: ...
    def prepare(self, model: Module, optimizer: Optimizer) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def load(self, state: dict[str, Any]) -> None: ...


class EnginePart(TrainPart, Protocol):
    """Whole training runs besides: what step 6 needs. ``mobilenetv3_common.run.Run`` is what a run looks like.

    A part that also has ``save(run, folder, best)``, which writes a checkpoint that ``build_run`` resumes from
    (``mobilenetv3_common.training.save``), has resumed runs compared.

    For ``--ranks`` the port's part also has ``started(device)``, a context manager that joins this process to the others of a
    launch and gives its ``Ranks``.
    """

    def Ranks(self, rank: int = 0, world_size: int = 1, device: str = "cpu") -> Any: ...
    def build_run(self, config: TrainConfig, ranks: Any, builder: Callable[[int], Module] | None = None) -> Any: ...
    def update(self, run: Any, gathered: list) -> None: ...
    def micro_batches(self, run: Any) -> Iterator[Any]: ...
    def evaluation_loader(self, run: Any) -> Any: ...
    def evaluate_run(self, run: Any, loader: Any) -> Any: ...


# --- sides, models, projects -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One side of the comparison: its framework, and the parts that it has besides models.

    Attributes:
        framework: with the project's own layers registered.
        data, metric, loss, train: None where the side has no such part. A ``train`` part without whole runs
            (``build_run``) serves step 5 alone.
    """

    framework: Framework
    data: DataPart | None = None
    metric: MetricPart | None = None
    loss: LossPart | None = None
    train: TrainPart | EnginePart | None = None

    def with_names(self, part: str, **names: Any) -> Side:
        """The same side with some names of a part replaced, e.g. ``with_names("loss", CrossEntropyLoss=X)``."""
        if part not in PARTS:
            raise TypeError(f"no such part of a side: {part}")
        changed: Any = _Changed(getattr(self, part), names)
        return replace(self, **{part: changed})


class _Changed:
    """A part with some names replaced; the others are the part's own."""

    def __init__(self, part: Any, names: Mapping[str, Any]) -> None:
        self._part = part
        for name, value in names.items():
            getattr(part, name)  # a misspelt name is an error
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


@dataclass(frozen=True)
class ModelSpec:
    """One network on both sides, and what the steps have to know of it.

    Attributes:
        port, reference: build the network with fresh weights; called with ``options``.
        options: keyword arguments of both builders.
        input_shape: of one sample, e.g. (3, 224, 224): what step 1 runs on; pictures where it has three numbers and the
            project has data, standard normal numbers otherwise.
        small_shape: of one sample where many passes are made (step 5, localisation); ``input_shape`` where None.
        inputs: makes the inputs of a forward pass, (samples, shape of one, generator) -> arrays with the samples as first
            axis; standard normal numbers of ``input_shape`` where None.
        whole_inputs: whether ``inputs`` gives the same number of rows whatever is asked for: those of a graph are no samples.
        blocks: paths in the reference of the modules whose outputs step 1 compares, in the order of computation; every child
            of the model, or of a part of it that is a plain sequence, where None.
        last_layer: path in the reference of the linear layer whose rows are the classes; None where there is none.
        options_of: the builders' options that fit a canonical state (class count, width, ...); the spec's own where None.
        published: name for ``--weights`` -> fetches the file of published weights and returns its path.
        load: how the port takes the reference's weights, (port, canonical state of the reference); by equal names where None.
        train_options: of the builders in step 6 besides ``num_classes``, from the recipe: dropout, width and the like.
        updates: updates of each run of step 5, at most ten; fewer for networks that take long.
        variants: further options under which a sound port must not fail (``bench --false-alarms``).
        compared_options: further options of both builders under which step 1 compares structure, dropout and one forward pass.
        compared_structures: further options under which step 1 compares the shapes of all tensors, without memory for them where
            the framework can: models that are much too large to run.
        initialisation: whether step 1 compares the distribution of fresh weights; where None, if the project makes whole
            training runs (step 6), which begin with them.
    """

    port: Builder
    reference: Builder
    options: Mapping[str, Any] = field(default_factory=dict)
    input_shape: tuple[int, ...] = (3, 224, 224)
    small_shape: tuple[int, ...] | None = None
    inputs: Callable[[int, tuple[int, ...], np.random.Generator], tuple[np.ndarray, ...]] | None = None
    whole_inputs: bool = False
    blocks: Callable[[Framework, Module], list[str]] | None = None
    last_layer: str | None = None
    options_of: Callable[[State], Mapping[str, Any]] | None = None
    published: Mapping[str, Callable[[], Path]] = field(default_factory=dict)
    load: Callable[[Module, State], None] | None = None
    train_options: Callable[[TrainConfig], Mapping[str, Any]] = lambda recipe: {}
    updates: int = 10
    variants: Sequence[Mapping[str, Any]] = ({},)
    compared_options: Sequence[Mapping[str, Any]] = ()
    compared_structures: Sequence[Mapping[str, Any]] = ()
    initialisation: bool | None = None


@dataclass(frozen=True)
class Independent:
    """What is known of the data part from code that the project does not share: step 2 holds the port against it.

    Both sides may share code, and with it a mistake. What is None here is not compared, and not covered.

    Attributes:
        name: for the rows, e.g. ``"torchvision"``.
        pictures: the preprocessed evaluation pictures of an index under the published preset, float32 (N, 3, 224, 224).
        listed: file names and labels of a split's class folder, in order; None where the data path has list files.
        data: a data part with its own decoding (Pillow and OpenCV), transforms and mixing, for given presets and drawn
            parameters; its data set also has ``decode`` and ``mix_batch``.
        draws: how the drawn parameters are distributed.
        published: default values, ``"TrainPreset.crop_scale"`` -> value; ``"IMAGENET_POLICY"`` is AutoAugment's.
        recipes: recipe files, each with the values of ``TrainConfig``'s fields that its authors document.
    """

    name: str
    pictures: Callable[[DatasetIndex], np.ndarray]
    listed: Callable[[DatasetIndex, str], tuple[list[str], list[int]] | None]
    data: DataPart | None = None
    draws: Draws | None = None
    published: Callable[[], Mapping[str, Any]] | None = None
    recipes: Callable[[], Mapping[Path, Mapping[str, Any]]] | None = None


@dataclass(frozen=True)
class Deployed:
    """An exported network in the engines that run it.

    Attributes:
        engines: by name: pictures, float32 (N, 3, H, W), to logits (N, classes).
        preprocess: a picture's file to its pixels, float32 (3, H, W).
        predict: name of an engine and picture files -> the number of the likeliest class of each, by the whole chain.
    """

    engines: Mapping[str, Callable[[np.ndarray], np.ndarray]]
    preprocess: Callable[[Path], np.ndarray]
    predict: Callable[[str, Sequence[Path]], Sequence[int]]


@dataclass(frozen=True)
class Project:
    """A port and its reference.

    Attributes:
        name: of the project.
        port, reference: the two sides.
        models: by name; the first is the default of ``--model``.
        sample_data: a data path that comes with the project: the default of ``--data-path``, and the pictures on which weights
            are calibrated; None where the project has no pictures.
        cache: makes the folder in which calibrated weights are kept; they are made anew each time where None.
        independent: of step 2, where there is one.
        without: options of a run that the port is known not to offer, in the words of coverage, e.g. ``"gradient checkpointing"``:
            they are not compared where it refuses them. Any other refusal of the port alone is a mistake.
        deploy: what makes an export of the port's network, for step 8: (model, network, folder, size of pictures).
        witnesses: of code that both sides share, by the steps that hear them (``alignment.witness``): a project that has any counts
            what its two sides agree on as covered only where a witness spoke for it, too.
        faults: the project's list of known mistakes, for ``--inject`` and ``bench``; imported only when asked for.
        edits: its known mistakes as edits of the source, and right rewrites (``alignment.faults.Edits``).
        train_plan: fields of ``alignment.comparisons.run.train.Plan`` that replace its defaults.
        recipe: fields of step 6's recipe (``alignment.comparisons.run.recipe.RECIPE``) that replace its own.
    """

    name: str
    port: Side
    reference: Side
    models: Mapping[str, ModelSpec]
    sample_data: Path | None = None
    cache: Callable[[], Path] | None = None
    independent: Independent | None = None
    without: Sequence[str] = ()
    witnesses: Sequence[Witness] = ()
    deploy: Callable[[str, Module, Path, int], Deployed] | None = None
    faults: Callable[[], Mapping[str, KnownFault]] | None = None
    edits: Callable[[], Any] | None = None
    train_plan: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def with_port(self, part: str, **names: Any) -> Project:
        """The same project with some names of one part of the port replaced."""
        return replace(self, port=self.port.with_names(part, **names))

    def with_models(self, change: Callable[[ModelSpec], ModelSpec]) -> Project:
        """The same project with every model's spec changed."""
        return replace(self, models={name: change(spec) for name, spec in self.models.items()})

    def lacks(self, part: str) -> str:
        """Why a step that needs a part cannot run; ``""`` where both sides have it."""
        missing = [role for role in ("port", "reference") if getattr(getattr(self, role), part) is None]
        return f"the {' and the '.join(missing)} {'has' if len(missing) == 1 else 'have'} no {part} part" if missing else ""

    def lacks_runs(self) -> str:
        """Why step 6 cannot run; ``""`` where both sides have whole training runs."""
        without = [role for role in ("port", "reference") if not hasattr(getattr(self, role).train, "build_run")]
        return self.lacks("train") or (f"the {' and the '.join(without)} cannot make whole training runs" if without else "")

    def use(self, device: str) -> None:
        """Both frameworks compute on ``"cpu"`` or ``"gpu"`` from now on.

        Raises:
            UserError: one of them does not have it.
        """
        for side in (self.port, self.reference):
            side.framework.use(device)


class KnownFault(Protocol):
    """A known mistake of a project's port (``alignment.faults.Fault``)."""

    @property
    def name(self) -> str: ...
    @property
    def make(self) -> Callable[[contextlib.ExitStack, Project], Project]: ...


# --- project files ---------------------------------------------------------------------------------------------------------


class _FromSource(SourceFileLoader):
    """Compiles a file whenever it is imported: Python takes kept bytecode for it where its second and its length are the same."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def import_file(file: Path) -> ModuleType:
    """Import a Python file: one in a package (a folder with ``__init__.py``) as a part of it, another one by itself.

    Files beside it can be imported by it.

    Raises:
        Exception: whatever the file raises.
    """
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    warnings.filterwarnings("ignore", message=".*No ccache found.*")  # what importing Paddle says
    if len(parts) > 1:
        return import_module(".".join(parts))
    name = f"project_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_FromSource(name, str(file)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # what pickles or inspects its classes looks there
    spec.loader.exec_module(module)
    return module


def load_project(path: str | Path, port: str = "") -> Project:
    """The ``PROJECT`` that a Python file defines, or one of its ``PROJECTS``.

    It is imported as ``import_file`` says.

    Args:
        path: of the file.
        port: the name of one of several; of a file that defines one project it is left empty.

    Raises:
        UserError: there is no such file, importing it raises, or it defines no such project.
    """
    known = load_ports(path)
    if not port and len(known) == 1:
        return next(iter(known.values()))
    if port not in known:
        names = ", ".join(filter(None, known))
        if not names:
            raise UserError(f"--port {port}: {path} has one port, without a name: leave it out")
        asked = f"--port {port}: {path} has no such port" if port else f"{path} has several ports, and this takes one"
        raise UserError(f"{asked}: use --port with one of {names}")
    return known[port]


def load_ports(path: str | Path) -> dict[str, Project]:
    """The projects that a Python file defines: ``PROJECTS``, ports of one reference by their names, or ``PROJECT``, without one.

    Raises:
        UserError: as ``load_project``.
    """
    file = Path(path).resolve()
    if not file.is_file() or file.suffix != ".py":
        raise UserError(f"{path} is not a project file: give a Python file that defines PROJECT, e.g. projects/NAME/project.py")
    with strangers("file", alone=True) as raised:
        module = import_file(file)
    if isinstance(raised.error, UserError):
        raise raised.error
    if (error := raised.error) is not None:
        if advice := advice_on(error):
            raise UserError(f"{path} cannot be imported: {advice}") from error
        raise import_problem(path, file, error) from error
    several = getattr(module, "PROJECTS", None)
    if several is None:
        return {"": _sound(getattr(module, "PROJECT", None), path, "PROJECT")}
    if (
        not isinstance(several, Mapping)
        or not several
        or not all(isinstance(name, str) and NAME.fullmatch(name) for name in several)
    ):
        raise UserError(f"{path}: PROJECTS must be a dict of projects by names of letters, digits and -, found {several!r:.80}")
    return {name: _sound(project, path, f"PROJECTS[{name!r}]") for name, project in several.items()}


NAME = re.compile(r"[\w-]+", re.ASCII)  # of a port: a folder of results is called so


def _sound(project: Any, path: str | Path, what: str) -> Project:
    """A project whose fields have the right types.

    Raises:
        UserError: it is none.
    """
    if not isinstance(project, Project):
        raise UserError(f"{path} defines no {what}: see alignment.project.Project")
    if isinstance(project.models, Mapping) and not project.models:
        raise UserError(f"{path}: {what} has no models: there is nothing to align")
    wrong = _wrong_type(project)
    if wrong:
        raise UserError(f"{path}: {what}: {wrong}")
    return project


def _wrong_type(project: Project) -> str:
    """What a project holds in the wrong place; ``""`` where nothing."""
    for role in ("port", "reference"):
        side = getattr(project, role)
        if not isinstance(side, Side):
            return f"{role} must be a Side, e.g. Side(Paddle()), found {_what(side)}"
        if not isinstance(side.framework, Framework):
            return f"the framework of {role} must be an object such as Paddle(), found {_what(side.framework)}"
    if not isinstance(project.models, Mapping):
        return f"models must be a dict, {{name: ModelSpec(...)}}, found {_what(project.models)}"
    for name, spec in project.models.items():
        if not isinstance(spec, ModelSpec):
            return f"models[{name!r}] must be a ModelSpec, found {_what(spec)}"
        for role in ("port", "reference"):
            builder, kind = getattr(spec, role), getattr(project, role).framework.module_type
            if isinstance(builder, kind) or not callable(builder):
                return f"the {role} of {name} must be a class or function that makes the model, found {_what(builder)}"
        for field_name in ("input_shape", "small_shape"):
            shape = getattr(spec, field_name)
            if not (shape is None or (isinstance(shape, tuple) and all(isinstance(n, int) and n > 0 for n in shape))):
                return f"{field_name} of {name} must be a tuple of whole numbers, e.g. (3, 224, 224), found {shape!r}"
        for field_name in ("variants", "compared_options", "compared_structures"):
            value = getattr(spec, field_name)
            if not isinstance(value, Sequence) or not all(isinstance(options, Mapping) for options in value):
                return f"{field_name} of {name} must be a list of dicts, e.g. [{{'width': 0.5}}], found {value!r}"
        for field_name in ("inputs", "blocks", "options_of", "load"):
            value = getattr(spec, field_name)
            if value is not None and not callable(value):
                return f"{field_name} of {name} must be a function, found {_what(value)}"
    return ""


def _what(value: Any) -> str:
    return (
        f"the class {value.__name__}"
        if isinstance(value, type)
        else f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"
    )
