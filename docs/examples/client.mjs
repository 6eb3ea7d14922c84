// Ask a service from JavaScript: node docs/examples/client.mjs http://127.0.0.1:8000 FILE
//
// FILE is a picture, which the service's /predict decodes, or tensors that are prepared already, float32 (N, 3, 224, 224) in
// a .npy file, which go to the open inference protocol as binary data. The functions run in Node.js (18 or later) and in
// browsers. With a token: TOKEN=... node docs/examples/client.mjs ...

const LENGTH = "Inference-Header-Content-Length";

async function ask(url, body, token, headers = {}) {
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(url, body === undefined ? {headers} : {method: "POST", body, headers});
  if (answer.ok) return answer;
  const problem = await answer.json();
  throw new Error(`${answer.status}: ${problem.error || problem.detail}`);
}

/** The likeliest classes of a picture's bytes: [{index, name, probability}, ...]. */
export async function predict(server, picture, {topk = 5, token} = {}) {
  const answer = await ask(`${server}/predict?topk=${topk}`, picture, token, {"Content-Type": "application/octet-stream"});
  return (await answer.json()).predictions;
}

/** What the model takes and gives: {name, versions, platform, inputs, outputs}. */
export async function metadata(server, model, {token} = {}) {
  return (await ask(`${server}/v2/models/${model}`, undefined, token)).json();
}

/** Logits of pictures, a Float32Array of N x classes, from a Float32Array of shape [N, 3, height, width]. */
export async function infer(server, model, images, shape, {token} = {}) {
  const bytes = new Uint8Array(images.buffer, images.byteOffset, images.byteLength);
  const header = new TextEncoder().encode(JSON.stringify({
    inputs: [{name: "images", datatype: "FP32", shape, parameters: {binary_data_size: bytes.length}}],
    outputs: [{name: "logits", parameters: {binary_data: true}}],
  }));
  const body = new Uint8Array(header.length + bytes.length);
  body.set(header);
  body.set(bytes, header.length);
  const headers = {"Content-Type": "application/octet-stream", [LENGTH]: String(header.length)};
  const answer = await ask(`${server}/v2/models/${model}/infer`, body, token, headers);
  const content = await answer.arrayBuffer();
  const end = Number(answer.headers.get(LENGTH));
  const {outputs: [output]} = JSON.parse(new TextDecoder().decode(content.slice(0, end)));
  return {shape: output.shape, logits: new Float32Array(content.slice(end))};
}

/** A .npy file's bytes to {shape, data}; float32 in C order alone. */
export function npy(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const wide = view.getUint8(6) > 1, start = wide ? 12 : 10;
  const end = start + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder("latin1").decode(bytes.subarray(start, end));
  if (!header.includes("'<f4'") || !header.includes("'fortran_order': False")) throw new Error("not float32 in C order");
  const shape = header.match(/'shape': \(([^)]*)\)/)[1].split(",").filter(size => size.trim()).map(Number);
  return {shape, data: new Float32Array(bytes.slice(end).buffer)};
}

async function main(server, file) {
  const {readFile} = await import("node:fs/promises");
  const {TOKEN: token, MODEL: model = "mobilenet_v3_small"} = process.env;
  const bytes = new Uint8Array(await readFile(file));
  if (!file.endsWith(".npy")) {
    for (const {name, probability} of await predict(server, bytes, {topk: 3, token}))
      console.log(`${(100 * probability).toFixed(1).padStart(5)} %  ${name}`);
    return;
  }
  const {shape, data} = npy(bytes);
  const {shape: [count, classes], logits} = await infer(server, model, data, shape, {token});
  for (let row = 0; row < count; row++) {
    const one = logits.subarray(row * classes, (row + 1) * classes);
    const best = one.reduce((best, logit, index) => (logit > one[best] ? index : best), 0);
    console.log(`picture ${row}: class ${best}, logit ${one[best].toFixed(3)}`);
  }
}

if (typeof process !== "undefined" && process.argv[1] && import.meta.url.endsWith(process.argv[1].split("/").pop())) {
  if (process.argv.length !== 4) {
    console.error("usage: node docs/examples/client.mjs http://127.0.0.1:8000 FILE");
    process.exit(2);
  }
  main(process.argv[2].replace(/\/$/, ""), process.argv[3]).catch(problem => {
    console.error(`${process.argv[3]}: ${problem.message}`);
    process.exit(1);
  });
}
