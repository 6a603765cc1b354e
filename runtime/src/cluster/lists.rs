//! Lists of a kind that are read once, page by page.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cluster::api_client::{Answer, ApiClient, Unreachable};

/// Why a list could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("{}", .0.message())]
    Refused(Answer),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the answer cannot be read")]
    Answer(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct Page {
    items: Option<Vec<Box<RawValue>>>,
    metadata: PageMetadata,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Objects of one page where they are small.
const PAGE: usize = 500;

impl ApiClient {
    /// The objects of a list, of which at most `max` are needed. `path`: with a query, or without.
    pub(super) async fn list(&self, path: &str, max: usize) -> Result<Vec<Box<RawValue>>, ListError> {
        let mut all = Vec::new();
        let mut next = String::new();
        loop {
            let more = if path.contains('?') { '&' } else { '?' };
            let from = if next.is_empty() { String::new() } else { format!("&continue={next}") };
            let answer = self.get_page(&format!("{path}{more}limit={PAGE}{from}")).await?;
            if !answer.status.is_success() {
                return Err(ListError::Refused(answer));
            }
            let page: Page = serde_json::from_str(&answer.body)?;
            all.extend(page.items.unwrap_or_default());
            next = page.metadata.next;
            if next.is_empty() || all.len() >= max {
                all.truncate(max);
                return Ok(all);
            }
        }
    }
}
