// BullMQ's own producers and workers. fill COUNT FIRST BEGIN LENGTH, produce …: jobs as in php_like.py. work: the worker.
'use strict';

const fs = require('fs');
const { Queue, Worker } = require(process.env.PEER_FOLDER + '/node_modules/bullmq');

const url = new URL(process.argv[2]);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const PART = 1000;

function job(number, due) {
  const opts = { delay: Math.max(1, due - Date.now()), attempts: 5, removeOnComplete: true };
  return { name: 'cancel', data: { n: number, due }, opts };
}

async function send(count, first, begin, length, singly) {
  const queue = new Queue('order', { connection });
  const now = Date.now();
  for (let start = 0; start < count; start += PART) {
    const numbers = Array.from({ length: Math.min(PART, count - start) }, (_, at) => start + at);
    const due = (number) => Math.ceil(now + begin * 1000 + (length * 1000 * number) / count);
    if (singly) {
      for (const number of numbers) {
        const { name, data, opts } = job(first + number, due(number));
        await queue.add(name, data, opts);
        await new Promise((done) => setTimeout(done, 2));
      }
    } else {
      await queue.addBulk(numbers.map((number) => job(first + number, due(number))));
    }
  }
  await queue.close();
  process.exit(0);
}

function work() {
  const records = fs.openSync(process.env.RECORDS, 'a');
  const handle = async ({ data }) => {
    fs.writeSync(records, `${data.n} ${data.due} ${Date.now()}\n`);
  };
  new Worker('order', handle, { connection, concurrency: 100 }).on('error', (error) => console.error(error));
}

if (process.argv[3] === 'work') {
  work();
} else {
  send(...process.argv.slice(4).map(Number), process.argv[3] === 'produce');
}
