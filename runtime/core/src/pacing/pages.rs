//! Pages of lists: how many objects the next page of a kind asks for, so that each page has few bytes.

/// A page of more bytes is asked for again with fewer objects.
pub const MAX_PAGE_BYTES: u64 = 16 << 20;

/// Where objects are alike, a page has at most so many bytes.
const USUAL_BYTES: u64 = MAX_PAGE_BYTES / 2;

/// Objects in a page of a kind that was not listed yet: together they are small, whatever they are.
const FIRST: u32 = 16;

/// Objects in a page that clients of Kubernetes ask for.
const MAX_LIMIT: u32 = 500;

/// A limit grows by this factor at most, and shrinks by it after a page that was too large.
const STEP: u32 = 4;

/// How many objects of a kind a page asks for, and how large its objects were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSize {
    limit: u32,
    object_bytes: u64,
}

impl Default for PageSize {
    fn default() -> Self {
        Self { limit: FIRST, object_bytes: 0 }
    }
}

impl PageSize {
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// No more objects than this.
    #[must_use]
    pub fn at_most(self, limit: u32) -> Self {
        Self { limit: self.limit.min(limit).max(1), ..self }
    }

    /// The bytes that the page probably has.
    pub fn expected_bytes(self) -> u64 {
        self.object_bytes.saturating_mul(self.limit.into())
    }

    /// The next page, after one with so many objects and bytes. An empty page says nothing of its kind.
    #[must_use]
    pub fn after(self, objects: u64, bytes: u64) -> Self {
        if objects == 0 {
            return self;
        }
        let object_bytes = bytes.div_ceil(objects).max(1);
        let fitting = u32::try_from(USUAL_BYTES / object_bytes).unwrap_or(u32::MAX);
        let limit = fitting.min(self.limit.saturating_mul(STEP)).clamp(1, MAX_LIMIT);
        Self { limit, object_bytes }
    }

    /// The same page, after it found no room for so many bytes: it waits for twice as many.
    #[must_use]
    pub fn with_more_room(self, bytes: u64) -> Self {
        let object_bytes = bytes.saturating_mul(2).div_ceil(self.limit.into());
        Self { object_bytes: self.object_bytes.max(object_bytes), ..self }
    }

    /// A page with fewer objects, after one that was too large; `None`: it had one object, or the API server follows no
    /// limit.
    pub fn smaller(self) -> Option<Self> {
        let object_bytes = self.object_bytes.max(MAX_PAGE_BYTES / u64::from(self.limit));
        (self.limit > 1).then(|| Self { limit: (self.limit / STEP).max(1), object_bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lists objects of these sizes; gives the bytes of the pages that were read, and how many were too large.
    fn list(sizes: &[u64], mut page: PageSize) -> (Vec<u64>, u32, PageSize) {
        let (mut pages, mut refused, mut from) = (Vec::new(), 0, 0);
        while from < sizes.len() {
            assert!((1..=MAX_LIMIT).contains(&page.limit()));
            let end = sizes.len().min(from + page.limit() as usize);
            let bytes = sizes[from..end].iter().sum::<u64>();
            if bytes > MAX_PAGE_BYTES {
                page = page.smaller().expect("a page of one object is not too large");
                refused += 1;
                continue;
            }
            page = page.after((end - from) as u64, bytes);
            pages.push(bytes);
            from = end;
        }
        (pages, refused, page)
    }

    fn sizes() -> impl Strategy<Value = Vec<u64>> {
        let size = prop_oneof![300..2000_u64, 300..100_000_u64, 1_000_000..12_000_000_u64];
        let run = (size, 1..700_usize).prop_map(|(size, times)| vec![size; times]);
        prop::collection::vec(run, 1..5).prop_map(|runs| runs.concat())
    }

    #[test]
    fn a_page_without_room_waits_for_twice_as_much_with_the_same_limit() {
        let page = PageSize::default().with_more_room(3 << 20);
        assert_eq!((page.limit(), page.expected_bytes()), (FIRST, 6 << 20));
        let next = page.with_more_room(1 << 20);
        assert_eq!(next, page, "it never waits for less");
    }

    proptest! {
        #[test]
        fn a_list_is_read_to_its_end_in_bounded_pages(sizes in sizes()) {
            let (pages, refused, _) = list(&sizes, PageSize::default());
            prop_assert_eq!(pages.iter().sum::<u64>(), sizes.iter().sum::<u64>());
            // A page may have four times the bytes of the last one: five in a row are refused at most.
            prop_assert!(refused as usize <= 5 * pages.len(), "{} of {}", refused, pages.len());
        }

        #[test]
        fn of_objects_that_are_alike_no_second_list_has_a_page_that_is_too_large(
            size in 300..8_000_000_u64, count in 1..2000_usize,
        ) {
            let sizes = vec![size; count];
            let (_, _, page) = list(&sizes, PageSize::default());
            let (pages, refused, _) = list(&sizes, page);
            prop_assert_eq!(refused, 0);
            prop_assert!(pages.iter().all(|bytes| *bytes <= USUAL_BYTES), "{pages:?}");
            let full = USUAL_BYTES.min(size * u64::from(MAX_LIMIT)) / 2;
            let few = usize::try_from(sizes.iter().sum::<u64>() / full).unwrap() + 4;
            prop_assert!(pages.len() <= few, "{} pages, {few} would do", pages.len());
        }

        #[test]
        fn a_page_that_is_too_large_gets_fewer_objects_until_it_has_one(limit in 1..=MAX_LIMIT) {
            let mut page = PageSize { limit, object_bytes: 0 };
            let mut times = 0;
            while let Some(smaller) = page.smaller() {
                prop_assert!(smaller.limit() < page.limit());
                page = smaller;
                times += 1;
            }
            prop_assert_eq!(page.limit(), 1);
            prop_assert!(times <= 5);
        }
    }

    #[test]
    fn an_empty_page_says_nothing() {
        let page = PageSize::default().after(10, 10_000_000);
        assert_eq!(page.after(0, 100), page);
        assert_eq!(page.limit(), 8);
        assert_eq!(page.at_most(1).limit(), 1);
    }
}
