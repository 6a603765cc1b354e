//! Reviews that the API server answered within the last seconds: a page that is open asks the same every three.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use metahook_core::hash::Fingerprint;
use tokio::time::Instant;

use crate::sync::lock;

/// A right that is taken away, and a token that is revoked, count no longer than this. The time begins before the API server is
/// asked.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Reviews that are remembered.
const MAX_REVIEWS: usize = 1000;

/// Answers of the API server, by fingerprints of the questions: a token is not kept.
pub(super) struct Reviews<T>(Mutex<BTreeMap<Fingerprint, (Instant, T)>>);

impl<T> Default for Reviews<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Reviews<T> {
    pub(super) fn find(&self, question: Fingerprint) -> Option<T> {
        let mut all = lock(&self.0);
        all.retain(|_, (asked, _)| asked.elapsed() < MAX_AGE);
        all.get(&question).map(|(_, answer)| answer.clone())
    }

    /// `asked`: when the API server was asked.
    pub(super) fn add(&self, question: Fingerprint, asked: Instant, answer: T) {
        let mut all = lock(&self.0);
        if all.len() >= MAX_REVIEWS && !all.contains_key(&question) {
            let oldest = all.iter().min_by_key(|(_, (asked, _))| *asked).map(|(oldest, _)| *oldest);
            oldest.and_then(|oldest| all.remove(&oldest));
        }
        all.insert(question, (asked, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: usize) -> Fingerprint {
        Fingerprint::of(&number.to_le_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_ten_seconds_since_the_question() {
        let reviews = Reviews::default();
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        reviews.add(question(1), asked, true);
        tokio::time::advance(Duration::from_millis(8999)).await;
        assert_eq!(reviews.find(question(1)), Some(true));
        assert_eq!(reviews.find(question(2)), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(reviews.find(question(1)), None);
        assert!(lock(&reviews.0).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_too_many_answers_goes() {
        let reviews = Reviews::default();
        for number in 0..=MAX_REVIEWS {
            reviews.add(question(number), Instant::now(), number);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(lock(&reviews.0).len(), MAX_REVIEWS);
        assert_eq!(
            [0, 1, MAX_REVIEWS].map(|it| reviews.find(question(it))),
            [None, Some(1), Some(MAX_REVIEWS)]
        );
    }
}
