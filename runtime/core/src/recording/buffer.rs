//! Lines of recordings that are under way, until their commands fetch them.
//!
//! # Guarantees
//! - There are at most [`MAX_RECORDINGS`], each with at most [`MAX_BYTES`] of lines.
//! - A recording whose command has fetched no lines for [`IDLE_TIMEOUT`] is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::object::id::Key;

pub const MAX_RECORDINGS: usize = 2;

/// Bytes of the lines of one recording.
pub const MAX_BYTES: usize = 8 << 20;

pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Subject of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Its kind and name.
    pub controller: String,
    /// One parent; all when absent.
    pub parent: Option<Key>,
    /// Values of Secrets are recorded.
    pub with_secrets: bool,
}

/// Recordings by the number that each command has chosen.
#[derive(Debug, Default)]
pub struct Recordings(BTreeMap<String, Recording>);

#[derive(Debug)]
struct Recording {
    subject: Subject,
    lines: Vec<String>,
    bytes: usize,
    lost: usize,
    fetched: Duration,
}

/// Lines since the last fetch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FetchedLines {
    pub lines: Vec<String>,
    /// Lines for which there was no room.
    pub lost: usize,
    /// The recording begins with this fetch.
    pub began: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingRefused {
    #[error("{MAX_RECORDINGS} recordings are under way, and there may not be more: wait until one ends")]
    TooMany,
    #[error("a recording of something else has the number of this one: try again")]
    Other,
}

impl Recordings {
    /// Begins the recording where there is none of this number, and takes its lines.
    ///
    /// # Errors
    /// There are too many, or another recording has the number.
    pub fn fetch(
        &mut self,
        number: &str,
        subject: &Subject,
        now: Duration,
    ) -> Result<FetchedLines, RecordingRefused> {
        self.0.retain(|_, recording| now < recording.fetched + IDLE_TIMEOUT);
        if let Some(recording) = self.0.get_mut(number) {
            if recording.subject != *subject {
                return Err(RecordingRefused::Other);
            }
            recording.fetched = now;
            recording.bytes = 0;
            let (lines, lost) = (std::mem::take(&mut recording.lines), std::mem::take(&mut recording.lost));
            return Ok(FetchedLines { lines, lost, began: false });
        }
        if self.0.len() >= MAX_RECORDINGS {
            return Err(RecordingRefused::TooMany);
        }
        let (lines, subject) = (Vec::new(), subject.clone());
        self.0.insert(number.to_owned(), Recording { subject, lines, bytes: 0, lost: 0, fetched: now });
        Ok(FetchedLines { began: true, ..FetchedLines::default() })
    }

    /// Ends the recording.
    pub fn end(&mut self, number: &str, subject: &Subject) {
        if self.0.get(number).is_some_and(|recording| recording.subject == *subject) {
            self.0.remove(number);
        }
    }

    /// Whether some recording is about a parent of a controller: one with the values of Secrets, one without.
    pub fn wanted(&self, controller: &str, parent: &Key, now: Duration) -> [bool; 2] {
        [true, false].map(|with_secrets| {
            self.0
                .values()
                .any(|it| it.is_about(controller, parent, now) && it.subject.with_secrets == with_secrets)
        })
    }

    /// Adds a line to the recordings about a parent. `with_secrets`, `without`: the line as such recordings have it.
    pub fn add(
        &mut self,
        (controller, parent): (&str, &Key),
        [with_secrets, without]: [Option<&str>; 2],
        now: Duration,
    ) {
        for recording in self.0.values_mut().filter(|it| it.is_about(controller, parent, now)) {
            let Some(line) = (if recording.subject.with_secrets { with_secrets } else { without }) else {
                continue;
            };
            if recording.bytes + line.len() > MAX_BYTES {
                recording.lost += 1;
                continue;
            }
            recording.bytes += line.len();
            recording.lines.push(line.to_owned());
        }
    }

    /// Counts a line that is too large for the recordings about a parent: for one with the values of Secrets, for one without.
    pub fn lose(
        &mut self,
        (controller, parent): (&str, &Key),
        [with_secrets, without]: [bool; 2],
        now: Duration,
    ) {
        for recording in self.0.values_mut().filter(|it| it.is_about(controller, parent, now)) {
            let is_lost = if recording.subject.with_secrets { with_secrets } else { without };
            recording.lost += usize::from(is_lost);
        }
    }

    /// Whether no command fetches a recording any more.
    pub fn is_empty(&mut self, now: Duration) -> bool {
        self.0.retain(|_, recording| now < recording.fetched + IDLE_TIMEOUT);
        self.0.is_empty()
    }
}

impl Recording {
    fn is_about(&self, controller: &str, parent: &Key, now: Duration) -> bool {
        now < self.fetched + IDLE_TIMEOUT
            && self.subject.controller == controller
            && self.subject.parent.as_ref().is_none_or(|one| one == parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn subject(controller: &str, parent: Option<&str>) -> Subject {
        let parent = parent.map(|name| Key::new("n", name));
        Subject { controller: controller.to_owned(), parent, with_secrets: false }
    }

    fn add(recordings: &mut Recordings, controller: &str, parent: &str, line: &str) {
        recordings.add((controller, &Key::new("n", parent)), [None, Some(line)], NOW);
    }

    #[test]
    fn a_recording_has_the_lines_about_its_subject_once() {
        let mut all = Recordings::default();
        let began = || Ok(FetchedLines { began: true, ..FetchedLines::default() });
        assert_eq!(all.fetch("1", &subject("c", None), NOW), began());
        assert_eq!(all.fetch("2", &subject("c", Some("a")), NOW), began());
        for (controller, parent, line) in [("c", "a", "one"), ("c", "b", "two"), ("d", "a", "three")] {
            add(&mut all, controller, parent, line);
        }
        let lines = |all: &mut Recordings, number: &str, parent| {
            all.fetch(number, &subject("c", parent), NOW).unwrap().lines
        };
        assert_eq!(lines(&mut all, "1", None), ["one", "two"]);
        assert_eq!(lines(&mut all, "2", Some("a")), ["one"]);
        assert!(lines(&mut all, "1", None).is_empty(), "they are fetched once");
        assert_eq!(all.fetch("1", &subject("d", None), NOW), Err(RecordingRefused::Other));
    }

    #[test]
    fn recordings_and_their_lines_are_bounded() {
        let mut all = Recordings::default();
        for number in ["1", "2"] {
            all.fetch(number, &subject("c", None), NOW).unwrap();
        }
        assert_eq!(all.fetch("3", &subject("c", None), NOW), Err(RecordingRefused::TooMany));
        let half = "x".repeat(MAX_BYTES / 2);
        (0..3).for_each(|_| add(&mut all, "c", "a", &half));
        add(&mut all, "c", "a", "x");
        let fetched = all.fetch("1", &subject("c", None), NOW).unwrap();
        assert_eq!((fetched.lines.len(), fetched.lost, fetched.began), (2, 2, false));
        all.lose(("c", &Key::new("n", "a")), [true, false], NOW);
        assert_eq!(all.fetch("1", &subject("c", None), NOW).unwrap().lost, 0);
        all.lose(("c", &Key::new("n", "a")), [false, true], NOW);
        assert_eq!(all.fetch("1", &subject("c", None), NOW).unwrap().lost, 1);
        add(&mut all, "c", "a", "x");
        assert_eq!(all.fetch("1", &subject("c", None), NOW).unwrap().lines, ["x"]);
        all.end("2", &subject("d", None));
        assert_eq!(all.fetch("3", &subject("c", None), NOW), Err(RecordingRefused::TooMany));
        all.end("2", &subject("c", None));
        assert!(all.fetch("2", &subject("c", None), NOW).is_ok());
        // No command fetches the other one.
        let later = NOW + IDLE_TIMEOUT;
        assert_eq!(all.wanted("c", &Key::new("n", "a"), later), [false, false]);
        all.fetch("3", &subject("c", None), later).unwrap();
        assert!(!all.is_empty(later) && all.is_empty(later + IDLE_TIMEOUT));
    }

    #[test]
    fn a_recording_with_secrets_has_lines_of_its_own() {
        let mut all = Recordings::default();
        let whole = Subject { with_secrets: true, ..subject("c", None) };
        all.fetch("1", &whole, NOW).unwrap();
        let parent = Key::new("n", "a");
        assert_eq!(all.wanted("c", &parent, NOW), [true, false]);
        all.fetch("2", &subject("c", None), NOW).unwrap();
        assert_eq!(all.wanted("c", &parent, NOW), [true, true]);
        all.add(("c", &parent), [Some("whole"), Some("replaced")], NOW);
        assert_eq!(all.fetch("1", &whole, NOW).unwrap().lines, ["whole"]);
        assert_eq!(all.fetch("2", &subject("c", None), NOW).unwrap().lines, ["replaced"]);
        assert_eq!(all.fetch("2", &whole, NOW), Err(RecordingRefused::Other), "no secrets by a number");
    }
}
