// An exported model in JavaScript: pixels to the network's input, and its logits to classes. It needs no page: Node.js runs it, too.
//
// The numbers are those of mobilenetv3_common/preprocess.py to the last bit: Pillow's bilinear filter with its fixed-point
// weights, torchvision's rounding of the crop, and normalisation in float32.

const MOST_RATIO = 64;  // length by width, of what is scaled
const BITS = 22;        // of Pillow's fixed-point weights

/** Pillow's antialiased bilinear filter for one side: where each new pixel's sources begin, and their weights. */
function filter(from, to) {
  const scale = from / to, support = Math.max(scale, 1);
  return Array.from({length: to}, (_, at) => {
    const center = (at + 0.5) * scale;
    const start = Math.max(0, Math.trunc(center - support + 0.5));
    const end = Math.min(from, Math.trunc(center + support + 0.5));
    const weights = [];
    for (let x = start; x < end; x++)
      weights.push(Math.max(0, 1 - Math.abs((x - center + 0.5) * (1 / support))));
    const sum = weights.reduce((a, b) => a + b, 0);
    return {start, weights: weights.map(weight => Math.trunc(0.5 + (weight / sum) * 2 ** BITS))};
  });
}

/** One weighted sum of levels, rounded to 0..255. */
function mixed(levels, at, step, weights) {
  let sum = 2 ** (BITS - 1);
  for (let i = 0; i < weights.length; i++) sum += levels[at + i * step] * weights[i];
  return Math.max(0, Math.min(255, Math.floor(sum / 2 ** BITS)));
}

/** RGB levels {width, height, data} scaled to another size: first along rows, then along columns. */
function scaled({width, height, data}, newWidth, newHeight) {
  const across = filter(width, newWidth), down = filter(height, newHeight);
  const rows = new Uint8Array(3 * newWidth * height), out = new Uint8Array(3 * newWidth * newHeight);
  for (let y = 0; y < height; y++)
    across.forEach(({start, weights}, x) => {
      for (let c = 0; c < 3; c++)
        rows[3 * (y * newWidth + x) + c] = mixed(data, 3 * (y * width + start) + c, 3, weights);
    });
  down.forEach(({start, weights}, y) => {
    for (let x = 0; x < 3 * newWidth; x++)
      out[3 * newWidth * y + x] = mixed(rows, 3 * newWidth * start + x, 3 * newWidth, weights);
  });
  return {width: newWidth, height: newHeight, data: out};
}

/** A rectangle of RGB or RGBA levels, as RGB. */
function cut({width, data}, left, top, newWidth, newHeight, channels = 3) {
  const out = new Uint8Array(3 * newWidth * newHeight);
  for (let y = 0; y < newHeight; y++)
    for (let x = 0; x < newWidth; x++)
      for (let c = 0; c < 3; c++)
        out[3 * (y * newWidth + x) + c] = data[channels * ((top + y) * width + left + x) + c];
  return {width: newWidth, height: newHeight, data: out};
}

/** The middle of a picture that is more than 64 times as long as wide, else the whole; RGBA to RGB. */
function withinReach(picture) {
  const {width, height} = picture, short = Math.min(width, height), long = Math.max(width, height);
  if (long <= MOST_RATIO * short) return cut(picture, 0, 0, width, height, 4);
  const kept = MOST_RATIO * short + (long - MOST_RATIO * short) % 2, start = (long - kept) / 2;
  return width === long ? cut(picture, start, 0, kept, short, 4) : cut(picture, 0, start, short, kept, 4);
}

/** Rounds as Python does, half to even. */
const rounded = number => number % 1 === 0.5 && Math.floor(number) % 2 === 0 ? Math.floor(number) : Math.round(number);

/**
 * A picture to the network's input.
 *
 * @param picture {width, height, data}: RGBA levels, 0 to 255, row by row, as a canvas gives them; alpha is dropped.
 * @param preset resize_size, crop_size, mean and std, as deploy.json has them.
 * @returns Float32Array of shape [3, crop_size, crop_size].
 */
export function prepared(picture, {resize_size: size, crop_size: crop, mean, std}) {
  let image = withinReach(picture);
  const {width, height} = image, short = Math.min(width, height);
  const other = Math.trunc(size * Math.max(width, height) / short);
  if (short !== size) image = width <= height ? scaled(image, size, other) : scaled(image, other, size);
  const left = rounded((image.width - crop) / 2), top = rounded((image.height - crop) / 2);
  const {data} = cut(image, left, top, crop, crop), f = Math.fround;
  const out = new Float32Array(3 * crop * crop);
  for (let c = 0; c < 3; c++) {
    const levels = Float32Array.from({length: 256}, (_, level) => f(f(f(level / 255) - f(mean[c])) / f(std[c])));
    for (let i = 0; i < crop * crop; i++) out[c * crop * crop + i] = levels[data[3 * i + c]];
  }
  return out;
}

/** The likeliest classes of logits: [{index, name, probability}, ...]. */
export function likeliest(logits, classes, count = 5) {
  const most = logits.reduce((a, b) => Math.max(a, b));
  const shares = Array.from(logits, logit => Math.exp(logit - most)), sum = shares.reduce((a, b) => a + b);
  return shares.map((share, index) => ({index, name: classes[index], probability: share / sum}))
    .sort((a, b) => b.probability - a.probability).slice(0, count);
}

/**
 * A model that computes with ONNX Runtime Web.
 *
 * @param ort the module onnxruntime-web.
 * @param about deploy.json.
 * @param onnx address or bytes of model.onnx.
 * @returns a function of a picture, as prepared takes it, to its likeliest classes.
 */
export async function loaded(ort, about, onnx) {
  const session = await ort.InferenceSession.create(onnx, {executionProviders: ["wasm"]});
  const {preset, classes} = about, shape = [1, 3, preset.crop_size, preset.crop_size];
  return async (picture, count = 5) => {
    const input = new ort.Tensor("float32", prepared(picture, preset), shape);
    const output = await session.run({[session.inputNames[0]]: input});
    return likeliest(output[session.outputNames[0]].data, classes, count);
  };
}
