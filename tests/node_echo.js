// A user's own server as the documentation of `ws` begins: it echoes, and has no handler for errors.
const { WebSocketServer } = require("ws");
new WebSocketServer({ host: process.env.HOST, port: process.env.PORT, path: "/ws" }).on("connection", (socket) => {
  socket.on("message", (message, binary) => socket.send(message, { binary }));
});
