// The page: a picture from the disk to RGBA levels, and the answer on the screen. No picture leaves the browser.

import * as ort from "./ort.wasm.bundle.min.mjs";
import {loaded} from "./mobilenetv3.mjs";

const MOST_PIXELS = 50_000_000;
const at = id => document.getElementById(id);
let asked = 0;

async function start() {
  ort.env.wasm.numThreads = 1;  // more would need headers (cross-origin isolation) that a plain file server does not send
  ort.env.wasm.wasmPaths = {wasm: new URL("ort-wasm-simd-threaded.wasm", import.meta.url).href};
  const answer = await fetch("deploy.json");
  if (!answer.ok) throw new Error(`deploy.json: ${answer.status}`);
  const about = await answer.json();
  const classify = await loaded(ort, about, new URL("model.onnx", import.meta.url).href);
  at("about").textContent = `${about.model}, weights ${about.weights_sha256.slice(0, 12)}`;
  document.title = `${about.model}: what is on this picture?`;
  return classify;
}

/** A file's picture, upright, as RGBA levels. */
async function levels(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, {imageOrientation: "from-image", premultiplyAlpha: "none", colorSpaceConversion: "none"});
  } catch {
    throw new Error(`${file.name} is not a picture that this browser can read`);
  }
  const {width, height} = bitmap;
  if (width * height > MOST_PIXELS) throw new Error(`${file.name} has ${width} x ${height} pixels: make it smaller`);
  const canvas = Object.assign(document.createElement("canvas"), {width, height});
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, width, height);
}

function row({name, probability}) {
  const item = document.createElement("li"), line = document.createElement("div"), bar = document.createElement("progress");
  const label = document.createElement("span"), share = document.createElement("b");
  label.textContent = name;
  share.textContent = `${(100 * probability).toFixed(1)} %`;
  bar.value = probability;
  bar.ariaLabel = name;
  line.append(label, share);
  item.append(line, bar);
  return item;
}

const model = start();
model.then(() => { at("state").textContent = "ready"; }, problem => {
  at("state").textContent = "";
  at("error").textContent = `The model cannot be loaded: ${problem.message}`;
});

async function show(file) {
  const mine = ++asked;
  at("error").textContent = "";
  at("classes").replaceChildren();
  try {
    const picture = await levels(file);
    at("preview").src = URL.createObjectURL(file);
    at("preview").hidden = false;
    const classify = await model;
    const begin = performance.now(), found = await classify(picture);
    if (mine !== asked) return;  // another picture was chosen meanwhile
    at("classes").replaceChildren(...found.map(row));
    at("state").textContent = `${Math.round(performance.now() - begin)} ms in this browser`;
  } catch (problem) {
    if (mine !== asked) return;
    at("preview").hidden = true;
    at("error").textContent = problem.message;
  }
}

at("preview").addEventListener("load", () => URL.revokeObjectURL(at("preview").src));
at("file").addEventListener("change", () => at("file").files[0] && show(at("file").files[0]));
for (const kind of ["dragover", "dragleave", "drop"])
  at("drop").addEventListener(kind, event => {
    event.preventDefault();
    at("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) show(event.dataTransfer.files[0]);
  });
