// Sends messages to a queue of bide on Redis. `bide script send > send.lua` prints the script.
import { readFileSync } from "node:fs";
import { Redis } from "ioredis";

const redis = new Redis(process.env.REDIS_URL ?? "redis://localhost:6379"); // or: new Redis.Cluster([{ host, port }])
redis.defineCommand("bideSend", { numberOfKeys: 2, lua: readFileSync("send.lua", "utf8") });

const text = (value) =>
  value instanceof Date ? value.toISOString() : typeof value === "object" ? JSON.stringify(value) : String(value);

export async function send(topic, body = null, options = {}) {
  const given = Object.entries({ ...options, shards: options.shards ?? 1 }).filter(([, value]) => value != null);
  const named = given.flatMap(([name, value]) => [name, text(value)]);
  let keys = ["{bide:0}:meta", "{bide:0}:-"];
  for (;;) {
    try {
      const [id, due, outcome] = await redis.bideSend(...keys, topic, JSON.stringify(body), ...named);
      return { id, due: new Date(due), outcome };
    } catch (error) {
      const other = /^OTHERSHARD (\S+) (\S+)/.exec(error.message);
      if (!other) throw error;
      keys = [other[1], other[2]];
    }
  }
}

export const close = () => redis.quit();
