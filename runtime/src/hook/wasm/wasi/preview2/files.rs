//! Files of a component: its mounts, shown as preview 1 shows them, without times, devices or the order of a disk.
//!
//! wasmtime-wasi's own files are those of a disk. Its functions take handles, and behind them stand entries of the same
//! table that are ours.

use std::ops::Bound;

use bytes::Bytes;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult, ReaddirIterator};

use types::{
    Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, Filesize,
    MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};

use super::ComponentState;
use super::streams::{MAX_READ, Source};
use crate::hook::wasm::wasi::memory::{Errno, MAX_PATH};
use crate::hook::wasm::wasi::mounts::{FileType, MountedFolder, ResolvedPath, Stat};
use crate::hook::wasm::wasi::{ENTRY_COST, LOOKUP_COST};

/// An open file or folder.
struct OpenFile {
    folder: MountedFolder,
    stat: Stat,
    /// Content of a file.
    content: Option<Bytes>,
}

/// A listing under way, with the name that it came to.
struct Listing {
    folder: MountedFolder,
    last: Option<String>,
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        let code = match errno {
            Errno::Isdir => ErrorCode::IsDirectory,
            Errno::Noent => ErrorCode::NoEntry,
            Errno::Notdir => ErrorCode::NotDirectory,
            Errno::Perm => ErrorCode::NotPermitted,
            Errno::Rofs => ErrorCode::ReadOnly,
            Errno::Nametoolong => ErrorCode::NameTooLong,
            Errno::Ilseq => ErrorCode::IllegalByteSequence,
            _ => ErrorCode::Invalid,
        };
        code.into()
    }
}

impl OpenFile {
    fn content(&self) -> FsResult<&Bytes> {
        self.content.as_ref().ok_or_else(|| ErrorCode::IsDirectory.into())
    }

    fn find(&self, path: &str) -> FsResult<ResolvedPath> {
        self.check(path)?;
        Ok(self.folder.find(path)?)
    }

    /// Checks that a path leads from a folder, and its length, before any work goes into it.
    fn check(&self, path: &str) -> FsResult<()> {
        if self.content.is_some() {
            return Err(ErrorCode::NotDirectory.into());
        }
        if path.len() > MAX_PATH as usize {
            return Err(ErrorCode::NameTooLong.into());
        }
        Ok(())
    }
}

impl ComponentState {
    fn open(&self, fd: &Resource<Descriptor>) -> FsResult<&OpenFile> {
        Ok(self.table.get(&Resource::<OpenFile>::new_borrow(fd.rep()))?)
    }

    fn push(
        &mut self,
        open: OpenFile,
    ) -> Result<Resource<Descriptor>, wasmtime::component::ResourceTableError> {
        Ok(Resource::new_own(self.table.push(open)?.rep()))
    }

    /// Refuses a change, for which the component handed over so many bytes.
    fn refuse<T>(&self, fd: &Resource<Descriptor>, handed: usize) -> FsResult<T> {
        self.cost.copied(handed);
        self.open(fd)?;
        Err(ErrorCode::ReadOnly.into())
    }

    fn find(&self, fd: &Resource<Descriptor>, path: &str) -> FsResult<ResolvedPath> {
        self.lookup(path);
        self.open(fd)?.find(path)
    }

    fn lookup(&self, path: &str) {
        self.cost.add(LOOKUP_COST);
        self.cost.copied(path.len());
    }
}

impl preopens::Host for ComponentState {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let mut folders = Vec::with_capacity(self.mounts.len());
        for folder in self.mounts.clone() {
            self.cost.add(LOOKUP_COST);
            let path = folder.path.clone();
            let stat = folder.stat();
            folders.push((self.push(OpenFile { folder, stat, content: None })?, path));
        }
        Ok(folders)
    }
}

impl types::Host for ComponentState {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    /// Reading from memory does not fail.
    fn filesystem_error_code(&mut self, _: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(None)
    }
}

impl types::HostDirectoryEntryStream for ComponentState {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<ReaddirIterator>,
    ) -> FsResult<Option<DirectoryEntry>> {
        self.cost.add(ENTRY_COST);
        let listing = self.table.get_mut(&Resource::<Listing>::new_borrow(stream.rep()))?;
        let after = listing.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = listing.folder.files.range::<str, _>((after, Bound::Unbounded)).next();
        let name = next.map(|(name, _)| name.clone());
        listing.last.clone_from(&name);
        Ok(name.map(|name| DirectoryEntry { type_: DescriptorType::RegularFile, name }))
    }

    fn drop(&mut self, stream: Resource<ReaddirIterator>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Listing>::new_own(stream.rep()))?;
        Ok(())
    }
}

impl types::HostDescriptor for ComponentState {
    fn read_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: Filesize,
    ) -> FsResult<Resource<DynInputStream>> {
        let rest = rest(self.open(&fd)?.content()?, offset);
        let stream: DynInputStream = Box::new(Source::new(rest, self.cost.clone()));
        Ok(self.table.push(stream)?)
    }

    fn write_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        _: Filesize,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.refuse(&fd, 0)
    }

    fn append_via_stream(&mut self, fd: Resource<Descriptor>) -> FsResult<Resource<DynOutputStream>> {
        self.refuse(&fd, 0)
    }

    async fn advise(
        &mut self,
        fd: Resource<Descriptor>,
        _: Filesize,
        _: Filesize,
        _: Advice,
    ) -> FsResult<()> {
        self.open(&fd).map(drop)
    }

    async fn sync_data(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.open(&fd).map(drop)
    }

    async fn get_flags(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorFlags> {
        self.open(&fd).map(|_| DescriptorFlags::READ)
    }

    async fn get_type(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorType> {
        Ok(kind(self.open(&fd)?.stat))
    }

    async fn set_size(&mut self, fd: Resource<Descriptor>, _: Filesize) -> FsResult<()> {
        self.refuse(&fd, 0)
    }

    async fn set_times(
        &mut self,
        fd: Resource<Descriptor>,
        _: NewTimestamp,
        _: NewTimestamp,
    ) -> FsResult<()> {
        self.refuse(&fd, 0)
    }

    async fn read(
        &mut self,
        fd: Resource<Descriptor>,
        len: Filesize,
        offset: Filesize,
    ) -> FsResult<(Vec<u8>, bool)> {
        let rest = rest(self.open(&fd)?.content()?, offset);
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(MAX_READ);
        let read = rest.get(..len).unwrap_or(&rest);
        self.cost.copied(read.len());
        Ok((read.to_vec(), read.len() == rest.len()))
    }

    async fn write(&mut self, fd: Resource<Descriptor>, bytes: Vec<u8>, _: Filesize) -> FsResult<Filesize> {
        self.refuse(&fd, bytes.len())
    }

    async fn read_directory(&mut self, fd: Resource<Descriptor>) -> FsResult<Resource<ReaddirIterator>> {
        let open = self.open(&fd)?;
        if open.content.is_some() {
            return Err(ErrorCode::NotDirectory.into());
        }
        let folder = open.folder.clone();
        Ok(Resource::new_own(self.table.push(Listing { folder, last: None })?.rep()))
    }

    async fn sync(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.open(&fd).map(drop)
    }

    async fn create_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.refuse(&fd, path.len())
    }

    async fn stat(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorStat> {
        Ok(stat(self.open(&fd)?.stat))
    }

    async fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
    ) -> FsResult<DescriptorStat> {
        Ok(stat(self.find(&fd, &path)?.stat))
    }

    async fn set_times_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
        _: NewTimestamp,
        _: NewTimestamp,
    ) -> FsResult<()> {
        self.refuse(&fd, path.len())
    }

    async fn link_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        from: String,
        _: Resource<Descriptor>,
        to: String,
    ) -> FsResult<()> {
        self.refuse(&fd, from.len() + to.len())
    }

    async fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
        open_flags: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        self.lookup(&path);
        let open = self.open(&fd)?;
        open.check(&path)?;
        let found = open.folder.find(&path);
        let writes = open_flags.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE)
            || flags.intersects(DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY);
        let found = match found {
            Err(errno @ (Errno::Perm | Errno::Ilseq)) => return Err(errno.into()),
            _ if writes => return Err(ErrorCode::ReadOnly.into()),
            found => found?,
        };
        if open_flags.contains(OpenFlags::DIRECTORY) && found.content.is_some() {
            return Err(ErrorCode::NotDirectory.into());
        }
        let opened = OpenFile { folder: open.folder.clone(), stat: found.stat, content: found.content };
        Ok(self.push(opened)?)
    }

    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<String> {
        self.find(&fd, &path)?;
        Err(ErrorCode::Invalid.into()) // There are no links.
    }

    async fn remove_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.refuse(&fd, path.len())
    }

    async fn rename_at(
        &mut self,
        fd: Resource<Descriptor>,
        from: String,
        _: Resource<Descriptor>,
        to: String,
    ) -> FsResult<()> {
        self.refuse(&fd, from.len() + to.len())
    }

    async fn symlink_at(&mut self, fd: Resource<Descriptor>, from: String, to: String) -> FsResult<()> {
        self.refuse(&fd, from.len() + to.len())
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.refuse(&fd, path.len())
    }

    async fn is_same_object(
        &mut self,
        one: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        let inode = |fd: &Resource<Descriptor>| self.open(fd).map(|open| open.stat.inode);
        Ok(inode(&one).ok().zip(inode(&other).ok()).is_some_and(|(one, other)| one == other))
    }

    async fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> FsResult<MetadataHashValue> {
        Ok(hash(self.open(&fd)?.stat))
    }

    async fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        Ok(hash(self.find(&fd, &path)?.stat))
    }

    fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<OpenFile>::new_own(fd.rep()))?;
        Ok(())
    }
}

/// A file from a place on; nothing behind its end.
fn rest(content: &Bytes, offset: Filesize) -> Bytes {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
    content.slice(offset..)
}

fn kind(stat: Stat) -> DescriptorType {
    match stat.kind {
        FileType::Unknown => DescriptorType::Unknown,
        FileType::Folder => DescriptorType::Directory,
        FileType::File => DescriptorType::RegularFile,
    }
}

fn stat(stat: Stat) -> DescriptorStat {
    DescriptorStat {
        type_: kind(stat),
        link_count: 1,
        size: stat.size,
        data_access_timestamp: None,
        data_modification_timestamp: None,
        status_change_timestamp: None,
    }
}

fn hash(stat: Stat) -> MetadataHashValue {
    MetadataHashValue { lower: stat.inode, upper: stat.size }
}
