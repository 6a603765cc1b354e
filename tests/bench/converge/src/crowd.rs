//! Work for many objects over as many connections as a perfect controller would use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::task::JoinSet;

const CONNECTIONS: usize = 16;

/// Does `work` for each number below `count`; the first error ends it.
pub(crate) async fn each<W, F>(count: usize, work: W) -> Result<()>
where
    W: Fn(usize) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (next, work) = (Arc::clone(&next), work.clone());
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                work(number).await?;
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    Ok(())
}
