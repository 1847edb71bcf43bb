-- Records of attempts that failed, oldest first.

alter table bide.message add column traces bytea[];
alter table bide.dead add column traces bytea[];
