// BullMQ on Node, with what workload.py gives the others. 200 jobs at a time, as its guide to concurrency proposes.
// PEER_URL says whether its jobs are in Redis or in PostgreSQL.
'use strict';

const fs = require('fs');
const packages = process.env.PEER_FOLDER + '/node_modules/';
const { Queue, Worker, createPostgresBackend, runMigrations } = require(packages + 'bullmq');

const FAR = 3600;
const PART = 1000;
const SIZE = 100;
const CONCURRENCY = 200;
const SLOW = process.env.PEER_SLOW ? 50 : 0;
const url = new URL(process.env.PEER_URL);
const onPostgres = url.protocol === 'postgresql:';
const connection = onPostgres
  ? { connectionString: url.href, max: 20 }
  : { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const backend = onPostgres ? [createPostgresBackend] : [];

const now = () => (performance.timeOrigin + performance.now()) / 1000;
const payload = (number, due) => `${number}:${due.toFixed(6)}:`.padEnd(SIZE, 'x');
const options = (due) => ({
  removeOnComplete: true,
  ...(due === null ? {} : { delay: Math.max(1, Math.ceil(due * 1000 - Date.now())) }),
});

async function oneByOne(queue, seconds) {
  await queue.add('work', { payload: payload(0, now()) }, options(now() + 2 * FAR));
  const begin = now();
  let count = 0;
  while (now() - begin < seconds) {
    const due = now() + FAR;
    await queue.add('work', { payload: payload(count, due) }, options(due));
    count += 1;
  }
  return [count, now() - begin];
}

function spread(count, begin, length) {
  const first = now() + begin;
  const dues = Array.from({ length: count }, (_, number) => first + (length * number) / count);
  for (let last = dues.length - 1; last > 0; last -= 1) {
    const other = Math.floor(Math.random() * (last + 1));
    [dues[last], dues[other]] = [dues[other], dues[last]];
  }
  return dues;
}

async function inBatches(queue, items) {
  const begin = now();
  for (let first = 0; first < items.length; first += PART) {
    const part = items.slice(first, first + PART);
    await queue.addBulk(part.map(([text, due]) => ({ name: 'work', data: { payload: text }, opts: options(due) })));
  }
  return [items.length, now() - begin];
}

async function send(mode, numbers) {
  const queue = new Queue('peer', { connection }, ...backend);
  await queue.waitUntilReady();
  let result;
  if (mode === 'single') {
    result = await oneByOne(queue, numbers[0]);
  } else {
    const dues = mode === 'ready' ? Array(numbers[0]).fill(null) : spread(...numbers);
    result = await inBatches(queue, dues.map((due, number) => [payload(number, due === null ? now() : due), due]));
  }
  console.log(JSON.stringify({ count: result[0], seconds: result[1] }));
  await queue.close();
  process.exit(0);
}

function work() {
  const records = fs.openSync(process.env.PEER_RECORDS, 'a');
  const record = (what, text) => {
    const [number, due] = text.split(':');
    fs.writeSync(records, `${what} ${number} ${due} ${now().toFixed(6)}\n`);
  };
  const handle = async (job) => {
    if (SLOW) {
      record('started', job.data.payload);
      await new Promise((done) => setTimeout(done, SLOW));
    }
    record('done', job.data.payload);
  };
  const worker = new Worker('peer', handle, { connection, concurrency: CONCURRENCY }, ...backend);
  worker.on('error', (error) => console.error(error));
}

async function prepare() {
  const { Client } = require(packages + 'pg');
  const client = new Client({ connectionString: url.href });
  await client.connect();
  await runMigrations(client);
  await client.end();
}

if (process.argv[2] === 'send') {
  send(process.argv[3], process.argv.slice(4).map(Number));
} else if (process.argv[2] === 'prepare') {
  prepare();
} else {
  work();
}
