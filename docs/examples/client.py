"""Ask a service by the open inference protocol: python docs/examples/client.py http://127.0.0.1:8000 PICTURE ...

A client of any model server that speaks the protocol, such as this project's (tools/serve.py) or Triton with an exported model
repository. It needs numpy and Pillow; the pictures are prepared here, as the model was trained, and sent in one batch as
binary tensors. With a token: TOKEN=... python docs/examples/client.py ...
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request

import numpy as np
from PIL import Image, ImageOps

MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
LENGTH = "Inference-Header-Content-Length"


def ask(url: str, body: bytes | None = None, **headers: str) -> tuple[dict, bytes]:
    """GET, or POST where there is a body; the answer's JSON and the bytes behind it."""
    if token := os.environ.get("TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            content = answer.read()
            end = int(answer.headers.get(LENGTH) or len(content))
            return json.loads(content[:end]), content[end:]
    except urllib.error.HTTPError as error:
        sys.exit(f"{url}: {error.code}: {json.load(error)['error']}")


def prepared(file: str, crop: int) -> np.ndarray:
    """A picture, upright, its shorter side at 8/7 of the crop, the middle of it: float32 (3, crop, crop)."""
    image = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
    size = crop * 8 // 7
    short = min(image.size)
    image = image.resize((int(size * image.width / short), int(size * image.height / short)), Image.Resampling.BILINEAR)
    left, top = (round((side - crop) / 2) for side in image.size)
    pixels = np.asarray(image.crop((left, top, left + crop, top + crop)), np.float32) / 255
    return ((pixels - MEAN) / STD).transpose(2, 0, 1)


def infer(server: str, model: str, images: np.ndarray, topk: int = 0) -> np.ndarray:
    """Logits, float32 (N, classes), or the likeliest classes of each picture as texts, (N, topk)."""
    wanted = {"name": "logits", "parameters": {"classification": topk} if topk else {"binary_data": True}}
    data = np.ascontiguousarray(images, "<f4").tobytes()
    given = {"name": "images", "datatype": "FP32", "shape": images.shape, "parameters": {"binary_data_size": len(data)}}
    header = json.dumps({"inputs": [given], "outputs": [wanted]}).encode()
    headers = {LENGTH: str(len(header)), "Content-Type": "application/octet-stream"}
    answer, raw = ask(f"{server}/v2/models/{model}/infer", header + data, **headers)
    (output,) = answer["outputs"]
    return (np.array(output["data"]) if topk else np.frombuffer(raw, "<f4")).reshape(output["shape"])


def main(server: str, *files: str) -> None:
    server = server.rstrip("/")
    model = os.environ.get("MODEL", "mobilenet_v3_small")
    about, _ = ask(f"{server}/v2/models/{model}")
    crop = about["inputs"][0]["shape"][-1]
    images = np.stack([prepared(file, crop) for file in files])
    for file, row in zip(files, infer(server, model, images, topk=3), strict=True):
        print(file)
        for text in row:
            logit, _, name = text.split(":", 2)
            print(f"  {float(logit):8.3f}  {name}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python docs/examples/client.py http://127.0.0.1:8000 PICTURE ...")
    main(*sys.argv[1:])
