//! Starts tasks in the runtime of a database.

use std::future::Future;

use futures_util::future::BoxFuture;
use tokio::{runtime::Handle, task::JoinHandle};

/// Starts tasks in one runtime.
///
/// Each task is boxed: the code with which the runtime drives a task is compiled once for each
/// result, and not once for each task.
#[derive(Clone, Debug)]
pub struct Tasks(Handle);

impl Tasks {
    /// Starts tasks in `runtime`.
    pub fn new(runtime: Handle) -> Self {
        Self(runtime)
    }

    /// Starts a task. The task goes on if its handle is dropped.
    pub fn spawn<T>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T>
    where
        T: Send + 'static,
    {
        let task: BoxFuture<'static, T> = Box::pin(task);
        self.0.spawn(task)
    }

    /// Returns how many tasks have not ended.
    pub fn n_alive(&self) -> usize {
        self.0.metrics().num_alive_tasks()
    }
}
