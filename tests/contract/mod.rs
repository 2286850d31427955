//! What a caller may rely on, word by word: `docs/` and the OpenAPI say the same.

mod administration;
mod bad_input;
mod calendars;
mod clients;
mod durations;
mod explain;
mod first_minute;
mod formats;
mod layouts;
mod lifecycle;
mod named_periods;
mod names;
mod numbers;
mod openapi;
mod parse;
mod periods;
mod rehearsal;
mod replica;
mod sequences;
mod slow_clients;
mod snowflake;
mod strict;
mod workers;
