/** A server whose every byte a test says. */

import * as net from "node:net";

/** Answers each connection as a test says, while it is used. */
export async function withServer<T>(
  serve: (socket: net.Socket) => void,
  use: (url: string) => Promise<T>,
): Promise<T> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await use(`http://127.0.0.1:${(server.address() as net.AddressInfo).port}`);
  } finally {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  }
}

/** Sends one reply to each connection, and closes it. */
export function closing(reply: string): (socket: net.Socket) => void {
  return (socket) => {
    socket.once("data", () => socket.end(reply));
  };
}
