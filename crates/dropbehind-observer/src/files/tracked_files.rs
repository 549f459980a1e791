//! The table of files that are looked after.

use std::collections::HashMap;

use dropbehind_linux::FileId;

use super::tracked_file::TrackedFile;

/// The files that are looked after, by what they are and by the key that the
/// flusher's notices have.
#[derive(Debug, Default)]
pub(super) struct TrackedFiles {
    keys: HashMap<FileId, u64>,
    files: HashMap<u64, TrackedFile>,
    last_key: u64,
}

impl TrackedFiles {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// A key that no file has had.
    pub(super) fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    pub(super) fn insert(&mut self, key: u64, tracked: TrackedFile) {
        self.keys.insert(tracked.facts.id, key);
        self.files.insert(key, tracked);
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<TrackedFile> {
        let tracked = self.files.remove(&key)?;
        self.keys.remove(&tracked.facts.id);
        Some(tracked)
    }

    pub(super) fn key_of(&self, id: FileId) -> Option<u64> {
        self.keys.get(&id).copied()
    }

    pub(super) fn by_key(&mut self, key: u64) -> Option<&mut TrackedFile> {
        self.files.get_mut(&key)
    }

    pub(super) fn get(&self, id: FileId) -> Option<&TrackedFile> {
        self.files.get(self.keys.get(&id)?)
    }

    pub(super) fn by_id(&mut self, id: FileId) -> Option<&mut TrackedFile> {
        let key = self.keys.get(&id)?;
        self.files.get_mut(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TrackedFile> {
        self.files.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut TrackedFile> {
        self.files.values_mut()
    }
}
