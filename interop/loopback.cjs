// Preloaded into a Node server that cannot be told which address to bind: forces 127.0.0.1 and
// prints the port it really got, so PORT=0 is usable.
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => {
    console.log(`listening on http://127.0.0.1:${this.address().port}/mcp`);
  });
  const callback = rest.find((argument) => typeof argument === "function");
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, callback);
};
