//! Carries out `odometer next`: takes numbers, and prints their ids.

use clap::Args;
use odometer_core::name::SequenceName;
use ureq::http::Method;

use super::options::ReplicaOptions;
use super::replica_client::{ApiCall, ReplicaClient};
use super::replies::TakenReply;
use crate::commands::{failure::CommandFailure, output};

const IF_SILENT: &str =
    "Numbers may be used up: if you run the command again, you get different ones.";

/// What to take.
#[derive(Debug, Args)]
pub(crate) struct NextOptions {
    /// The sequence. A new name is created, if the configuration of the replica allows it.
    #[arg(value_name = "NAME", value_parser = SequenceName::parse)]
    name: SequenceName,
    /// How many numbers: 1 to 10000. If you give none, one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    count: Option<u64>,
    /// The period to count in, for sequences that have periods. If you give none, the current one.
    /// Sequences with `period` `keyed` need it.
    #[arg(long, value_name = "PERIOD")]
    period: Option<String>,
    /// Take one unbroken range.
    #[arg(long)]
    contiguous: bool,
    /// Print the reply of the API as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) replica: ReplicaOptions,
}

/// Takes numbers and prints them.
///
/// # Errors
/// No number was taken, or that is not known.
pub(crate) fn next(client: &ReplicaClient, options: &NextOptions) -> Result<(), CommandFailure> {
    let path = ["v1", "sequences", options.name.as_str(), "next"];
    let call = ApiCall::acting(Method::POST, &path, IF_SILENT)
        .with("count", options.count)
        .with("period", options.period.as_ref())
        .with("contiguous", options.contiguous.then_some(true));
    let (taken, reply) = client.read::<TakenReply>(&call)?;
    if options.json {
        return output::print_json(&reply.body);
    }
    let ids = match taken {
        TakenReply::Batch { ids } => ids,
        TakenReply::One { id } => vec![id],
    };
    output::print_lines(&ids)
}
