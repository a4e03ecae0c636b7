// Runs what the tests send, inside the extension host, with the `vscode` API at hand; one line of JSON each way.
const { connect } = require("node:net");
const { createInterface } = require("node:readline");
const vscode = require("vscode");

const AsyncFunction = (async () => {}).constructor;

exports.activate = () => {
  const socket = connect(process.env.MIDSPAN_PROBE);
  const send = (message) => socket.write(`${JSON.stringify(message)}\n`);
  socket.on("connect", () => send({ folder: vscode.workspace.workspaceFolders?.[0].uri.fsPath ?? "" }));
  createInterface(socket).on("line", async (line) => {
    const { id, code, values } = JSON.parse(line);
    try {
      const value = await new AsyncFunction("vscode", "values", code)(vscode, values);
      send({ id, value: value ?? null });
    } catch (error) {
      send({ id, error: error instanceof Error ? error.stack : String(error) });
    }
  });
};
