-- New messages, of which some are not plain.

-- include: begin layout topics wake early plain

-- script: put_named
-- Accept messages of which some have a key, an operation, an expiry or a large body. After what put is told: how many
-- of these, and each: topic, level, when, content, key, if_exists, operation, large body, within: of the message whose handler
-- sends this, the number of its topic, its id and salt.
-- Gives what put does; the second list has of each run of these in one topic: the topic's number, and of each of them
-- the outcome's first letter, id, salt, due (6 bytes), in one text, since a lane remembers it. A shard that only empties
-- itself creates nothing: a message that it knows nothing of is `absent`, and goes to another shard.

-- include: place keys holding expiries finish pending named accept

-- script: put_ruled
-- The same, with what if_exists says more: `later` and a number of ms, the longest wait; `keep` or `error` and
-- such a number: for so long it is the only one of its key; `merge` and the most
-- bytes of a body that holds several; `past` and the attempts that it had elsewhere (2 bytes), whether it is a dead letter
-- (1 byte), its error behind its length (4 bytes), and records of attempts, each behind its length (2 bytes).

-- include: place keys holding expiries finish pending named tails rules accept
