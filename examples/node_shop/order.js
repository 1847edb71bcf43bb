// An order must be paid within 15 minutes, or a worker in Python cancels it.
import { close, send } from "./bide.js";

const order = Number(process.argv[2] ?? 42);
try {
  const sent = await send("order.cancel", { order }, { delay: "15m", key: `order:${order}` });
  console.log(`${sent.outcome}: message ${sent.id} is due at ${sent.due.toISOString()}`);

  const tomorrow = new Date(Date.now() + 24 * 3600 * 1000);
  await send("order.remind", { order }, { at: tomorrow, key: `order:${order}`, headers: { trace: "7f3a" } });
  await send("order.pack", { order }, { operation: `pack ${order}` }); // due at once
} finally {
  await close();
}
