alter table bide.message add column by_clock boolean;  -- true: its due time is an instant, and waits for the server's clock
