//! Tests what is deployed: manifests, image, release and compose files. They are checked against
//! schemas and rules, and run.

mod bill;
mod changes;
mod cluster_callers;
mod compose;
mod compose_callers;
mod containers;
mod image;
mod kubectl;
mod manifests;
mod network;
mod package;
mod pod;
mod recover;
mod release;
mod roles;
mod schemas;
mod tools;
mod unit;
mod yaml;
