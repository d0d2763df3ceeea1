// Preloaded into the conformance suite, whose servers would listen on every interface. It asks for
// the port right after `listen(0)`, so looking up a host name would be too late: hence `_listen2`.
const net = require("node:net");

const BACKLOG = 511;
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  if (port !== 0 || typeof rest[0] === "string") return listen.call(this, port, ...rest);
  const callback = rest.find((argument) => typeof argument === "function");
  if (callback) this.once("listening", callback);
  this._listen2("127.0.0.1", port, 4, BACKLOG, undefined);
  return this;
};
