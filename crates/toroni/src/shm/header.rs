//! The headers of the three files. They are written once, at creation. A process that opens a bus checks all of a
//! header before it believes anything else in the file.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::acl::Permissions;
use super::directory::{BusFile, random};
use super::encoding::{
    array, get_u32, get_u64, lock_from_word, lock_to_word, notify_from_words, notify_to_words,
    policy_from_words, policy_to_words, put_u32, put_u64,
};
use super::mapping::HUGE_PAGE;
use super::platform::{self, KernelContext};
use super::regions::{Part, Regions};
use crate::error::FileError;
use crate::ring::layout::{
    ENDIANNESS, FEATURE_VALUES, FLAG_HUGE_PAGES, FLAG_PERSISTENT, KIND_PUBLISHERS, KIND_READERS,
    KIND_RING, KNOWN_TO_READ, KNOWN_TO_WRITE, LAYOUT_VERSION, MAGIC, RawFileHeader, RawHeader,
    RawKernelContext, TRACKED_TOPICS, UNSET,
};
use crate::settings::{LockKind, MOST_RETAINED_TOPICS, NotifyKind, Settings};
use std::mem::{offset_of, size_of};
use std::path::Path;

/// Bytes of the header of `ring`.
pub(crate) const HEADER_BYTES: usize = size_of::<RawHeader>();
/// Bytes of the header of `publishers` and of `readers`.
pub(crate) const FILE_HEADER_BYTES: usize = size_of::<RawFileHeader>();

/// What `ring` says about its bus. Every value is within its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) settings: Settings,
    /// Where the parts of the files are.
    pub(crate) regions: Regions,
    /// The offset of the stream in `ring`: a multiple of the page size.
    pub(crate) data_offset: u64,
    /// Features that a process must know to publish.
    pub(crate) must_write: u32,
    /// Who may use the bus.
    pub(crate) permissions: Permissions,
    /// Random. The three files of a bus have the same.
    pub(crate) bus_id: [u8; 16],
    /// Time of creation: CLOCK_REALTIME, ns.
    pub(crate) created_ns: u64,
    /// The creator's C library.
    pub(crate) libc: String,
    /// The creator's boot and namespaces.
    pub(crate) kernel_context: KernelContext,
    /// The identity of the stream: positions and sequences of one stream mean nothing in another.
    pub(crate) stream_id: [u8; 16],
}

impl Header {
    /// Returns the header of a new bus that this process creates now.
    pub(crate) fn new(settings: &Settings, permissions: &Permissions) -> Self {
        let bus_id = random();
        let regions = Regions::of_new(settings, TRACKED_TOPICS);
        Self {
            settings: *settings,
            data_offset: data_offset(settings, &regions),
            regions,
            must_write: if settings.retained_topics > 0 { FEATURE_VALUES } else { 0 },
            permissions: *permissions,
            bus_id,
            created_ns: platform::realtime_ns(),
            libc: platform::libc_name(),
            kernel_context: KernelContext::current(),
            stream_id: bus_id,
        }
    }

    pub(crate) fn ring_bytes(&self) -> u64 {
        self.data_offset.saturating_add(self.settings.capacity)
    }

    pub(crate) fn file_bytes(&self, file: BusFile) -> u64 {
        match file {
            BusFile::Ring => self.ring_bytes(),
            BusFile::Publishers | BusFile::Readers => self.regions.end(file),
        }
    }

    /// Returns the offset of a part in its file.
    pub(crate) fn offset(&self, part: Part) -> u64 {
        self.regions.offset(part)
    }

    /// Returns how many topics have a row in `readers`.
    pub(crate) fn tracked_topics(&self) -> u32 {
        self.regions.entries(Part::Rows)
    }

    pub(crate) fn slots(&self, file: BusFile) -> u32 {
        match file {
            BusFile::Ring => 0,
            BusFile::Publishers => self.settings.max_publishers,
            BusFile::Readers => self.settings.max_subscribers,
        }
    }

    /// If the bus has a robust mutex, checks that this process may take it. A mutex of another C library has
    /// another layout, and the owner's thread id names another thread in another PID namespace. `path` is that of
    /// the directory.
    pub(crate) fn check_robust(&self, path: &Path) -> Result<(), FileError> {
        if self.settings.lock != LockKind::Robust {
            return Ok(());
        }
        let refused =
            |boundary| Err(FileError::RobustLockRefused { path: path.to_owned(), boundary });
        // 0 means "unknown", because /proc is missing, and matches nothing.
        if self.kernel_context.pid_namespace == 0
            || self.kernel_context.pid_namespace != KernelContext::current().pid_namespace
        {
            return refused("PID namespaces");
        }
        if self.libc != platform::libc_name() {
            return refused("C libraries");
        }
        Ok(())
    }

    /// Checks that this release may publish on the bus, and write to its stream at all. `path` is that of the directory.
    pub(crate) fn check_may_publish(&self, path: &Path) -> Result<(), FileError> {
        check_features(self.must_write & !KNOWN_TO_WRITE, "publish on it", path)
    }

    /// If the bus has the multicast notifier, checks that it reaches this process. `path` is that of the directory.
    pub(crate) fn check_network(&self, path: &Path) -> Result<(), FileError> {
        if matches!(self.settings.notify, NotifyKind::Multicast { .. })
            && self.kernel_context.net_namespace != KernelContext::current().net_namespace
        {
            return Err(FileError::NetworkNamespace { path: path.to_owned() });
        }
        Ok(())
    }

    /// Returns the first bytes of `ring`.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        self.put_file_header(BusFile::Ring, &mut bytes);
        let settings = &self.settings;
        let (policy, policy_ns, policy_per_ns) = policy_to_words(settings.policy);
        let (notify, group) = notify_to_words(settings.notify);
        let flags = if settings.persistent { FLAG_PERSISTENT } else { 0 }
            | if settings.huge_pages { FLAG_HUGE_PAGES } else { 0 };
        put_u64(&mut bytes, offset_of!(RawHeader, file_bytes), self.ring_bytes());
        put_u64(&mut bytes, offset_of!(RawHeader, capacity), settings.capacity);
        put_u64(&mut bytes, offset_of!(RawHeader, topic_table_bytes), settings.topic_table_bytes);
        put_u64(&mut bytes, offset_of!(RawHeader, data_offset), self.data_offset);
        put_u32(&mut bytes, offset_of!(RawHeader, max_publishers), settings.max_publishers);
        put_u32(&mut bytes, offset_of!(RawHeader, max_subscribers), settings.max_subscribers);
        put_u32(&mut bytes, offset_of!(RawHeader, max_arrivals), settings.max_arrivals);
        put_u32(&mut bytes, offset_of!(RawHeader, lock), lock_to_word(settings.lock));
        put_u32(&mut bytes, offset_of!(RawHeader, notify), notify);
        put_u32(&mut bytes, offset_of!(RawHeader, policy), policy);
        put_u32(&mut bytes, offset_of!(RawHeader, flags), flags);
        put_u64(&mut bytes, offset_of!(RawHeader, policy_ns), policy_ns);
        put_u64(&mut bytes, offset_of!(RawHeader, policy_per_ns), policy_per_ns);
        let (address, port) =
            group.map_or((0, 0), |group| (group.ip().to_bits(), u32::from(group.port())));
        put_u32(&mut bytes, offset_of!(RawHeader, group_address), address);
        put_u32(&mut bytes, offset_of!(RawHeader, group_port), port);
        let Permissions { mode, writers, readers } = self.permissions;
        put_u32(&mut bytes, offset_of!(RawHeader, mode), mode.unwrap_or(UNSET));
        put_u32(&mut bytes, offset_of!(RawHeader, writers_gid), writers.unwrap_or(UNSET));
        put_u32(&mut bytes, offset_of!(RawHeader, readers_gid), readers.unwrap_or(UNSET));
        put_u32(&mut bytes, offset_of!(RawHeader, must_write), self.must_write);
        self.regions.encode(&mut bytes[REGIONS_OFFSET..KERNEL_CONTEXT_OFFSET]);
        put_u64(&mut bytes, offset_of!(RawHeader, created_ns), self.created_ns);
        for (place, byte) in
            bytes[offset_of!(RawHeader, libc)..][..LIBC_BYTES].iter_mut().zip(self.libc.bytes())
        {
            *place = byte;
        }
        bytes[KERNEL_CONTEXT_OFFSET..].copy_from_slice(&self.encode_changing());
        put_checksum(&mut bytes[..KERNEL_CONTEXT_OFFSET]);
        bytes
    }

    /// Returns the bytes from [`KERNEL_CONTEXT_OFFSET`] on, which are rewritten after a reboot.
    pub(super) fn encode_changing(&self) -> [u8; HEADER_BYTES - KERNEL_CONTEXT_OFFSET] {
        let mut bytes = [0; HEADER_BYTES - KERNEL_CONTEXT_OFFSET];
        let (kernel_context, stream_id) = bytes.split_at_mut(size_of::<RawKernelContext>());
        kernel_context.copy_from_slice(&self.kernel_context.encode());
        stream_id.copy_from_slice(&self.stream_id);
        bytes
    }

    /// Returns the first bytes of `publishers` or `readers`.
    pub(crate) fn encode_file(&self, file: BusFile) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        self.put_file_header(file, &mut bytes);
        put_checksum(&mut bytes);
        bytes
    }

    /// Decodes and checks the first bytes of `ring`, which is `file_bytes` long. `path` is that of the file.
    pub(crate) fn decode(bytes: &[u8], file_bytes: u64, path: &Path) -> Result<Self, FileError> {
        check_common(bytes, file_bytes, HEADER_BYTES, KIND_RING, path)?;
        check_checksum(&bytes[..KERNEL_CONTEXT_OFFSET], path)?;
        let damaged = |what: String| FileError::HeaderDamaged { path: path.to_owned(), what };
        let word = |offset| get_u32(bytes, offset);
        let unless_unset = |offset| Some(word(offset)).filter(|value| *value != UNSET);
        check_features(word(offset_of!(RawHeader, must_read)) & !KNOWN_TO_READ, "open it", path)?;
        let flags = word(offset_of!(RawHeader, flags));
        let mut settings = Settings {
            capacity: get_u64(bytes, offset_of!(RawHeader, capacity)),
            topic_table_bytes: get_u64(bytes, offset_of!(RawHeader, topic_table_bytes)),
            max_publishers: word(offset_of!(RawHeader, max_publishers)),
            max_subscribers: word(offset_of!(RawHeader, max_subscribers)),
            max_arrivals: word(offset_of!(RawHeader, max_arrivals)),
            retained_topics: 0,
            retained_bytes: 0,
            policy: policy_from_words(bytes).ok_or_else(|| damaged("unknown policy".to_owned()))?,
            lock: lock_from_word(word(offset_of!(RawHeader, lock)))
                .ok_or_else(|| damaged("unknown lock kind".to_owned()))?,
            notify: notify_from_words(bytes)
                .ok_or_else(|| damaged("unknown notifier".to_owned()))?,
            persistent: flags & FLAG_PERSISTENT != 0,
            huge_pages: flags & FLAG_HUGE_PAGES != 0,
        };
        let check = |settings: &Settings| {
            settings.validate().map_err(|invalid| damaged(invalid.to_string()))
        };
        check(&settings)?;
        let regions = &bytes[REGIONS_OFFSET..KERNEL_CONTEXT_OFFSET];
        let regions = Regions::decode(regions, &settings).map_err(damaged)?;
        (settings.retained_topics, settings.retained_bytes) = regions.retained();
        check(&settings)?;
        let libc = &bytes[offset_of!(RawHeader, libc)..][..LIBC_BYTES];
        let header = Self {
            settings,
            data_offset: get_u64(bytes, offset_of!(RawHeader, data_offset)),
            regions,
            must_write: word(offset_of!(RawHeader, must_write)),
            permissions: Permissions {
                mode: unless_unset(offset_of!(RawHeader, mode)),
                writers: unless_unset(offset_of!(RawHeader, writers_gid)),
                readers: unless_unset(offset_of!(RawHeader, readers_gid)),
            },
            bus_id: array(bytes, offset_of!(RawFileHeader, bus_id)),
            created_ns: get_u64(bytes, offset_of!(RawHeader, created_ns)),
            libc: String::from_utf8_lossy(libc).trim_end_matches('\0').to_owned(),
            kernel_context: KernelContext::decode(&array(bytes, KERNEL_CONTEXT_OFFSET)),
            stream_id: array(bytes, offset_of!(RawHeader, stream_id)),
        };
        let unit = stream_alignment(&header.settings);
        if header.data_offset < header.regions.end(BusFile::Ring)
            || !header.data_offset.is_multiple_of(unit)
        {
            return Err(damaged(format!("start of the stream {}", header.data_offset)));
        }
        let found = get_u64(bytes, offset_of!(RawHeader, file_bytes));
        if found != header.ring_bytes() {
            return Err(damaged(format!("size {found}, expected {}", header.ring_bytes())));
        }
        check_size(file_bytes, header.ring_bytes(), path)?;
        if file_bytes > header.ring_bytes() {
            return Err(damaged(format!(
                "the file has {file_bytes} bytes, expected {}",
                header.ring_bytes()
            )));
        }
        Ok(header)
    }

    /// Checks the first bytes of `publishers` or `readers`, which is `file_bytes` long and must belong to the bus
    /// of this header. `path` is that of the file.
    pub(crate) fn check_file(
        &self,
        file: BusFile,
        bytes: &[u8],
        file_bytes: u64,
        path: &Path,
    ) -> Result<(), FileError> {
        check_common(bytes, file_bytes, FILE_HEADER_BYTES, kind(file), path)?;
        check_checksum(&bytes[..FILE_HEADER_BYTES], path)?;
        if array(bytes, offset_of!(RawFileHeader, bus_id)) != self.bus_id {
            return Err(FileError::ForeignFile { path: path.to_owned() });
        }
        let slots = get_u32(bytes, offset_of!(RawFileHeader, slots));
        if slots != self.slots(file) {
            let what = format!("{slots} slots, ring says {}", self.slots(file));
            return Err(FileError::HeaderDamaged { path: path.to_owned(), what });
        }
        check_size(file_bytes, self.file_bytes(file), path)
    }

    fn put_file_header(&self, file: BusFile, bytes: &mut [u8]) {
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        put_u32(bytes, offset_of!(RawFileHeader, endianness), ENDIANNESS);
        put_u32(bytes, offset_of!(RawFileHeader, version), LAYOUT_VERSION);
        put_u32(bytes, offset_of!(RawFileHeader, architecture), platform::ARCHITECTURE);
        put_u32(bytes, offset_of!(RawFileHeader, page_bytes), platform::page_bytes());
        put_u32(bytes, offset_of!(RawFileHeader, kind), kind(file));
        put_u32(bytes, offset_of!(RawFileHeader, slots), self.slots(file));
        bytes[offset_of!(RawFileHeader, bus_id)..][..16].copy_from_slice(&self.bus_id);
    }
}

const _: () = assert!(MOST_RETAINED_TOPICS == TRACKED_TOPICS);

/// Returns the size of the three files of a bus together.
pub(crate) fn bus_bytes(settings: &Settings) -> u64 {
    let regions = Regions::of_new(settings, TRACKED_TOPICS);
    data_offset(settings, &regions)
        .saturating_add(settings.capacity)
        .saturating_add(regions.end(BusFile::Publishers))
        .saturating_add(regions.end(BusFile::Readers))
}

const REGIONS_OFFSET: usize = offset_of!(RawHeader, regions);

/// Offset in `ring` of the part that is rewritten after a reboot.
pub(super) const KERNEL_CONTEXT_OFFSET: usize = offset_of!(RawHeader, kernel_context);

const LIBC_BYTES: usize = REGIONS_OFFSET - offset_of!(RawHeader, libc);
const CHECKSUM_OFFSET: usize = offset_of!(RawFileHeader, checksum);

/// Returns where the stream of a new bus begins.
fn data_offset(settings: &Settings, regions: &Regions) -> u64 {
    let end = regions.end(BusFile::Ring);
    end.checked_next_multiple_of(stream_alignment(settings)).unwrap_or(u64::MAX)
}

/// Returns what the offset of the stream is a multiple of.
fn stream_alignment(settings: &Settings) -> u64 {
    let page_bytes = u64::from(platform::page_bytes());
    if settings.huge_pages { page_bytes.max(HUGE_PAGE as u64) } else { page_bytes }
}

pub(super) fn kind(file: BusFile) -> u32 {
    match file {
        BusFile::Ring => KIND_RING,
        BusFile::Publishers => KIND_PUBLISHERS,
        BusFile::Readers => KIND_READERS,
    }
}

/// Makes the checks that all files have in common. Each one makes the next meaningful, so the order matters.
fn check_common(
    bytes: &[u8],
    file_bytes: u64,
    wanted_bytes: usize,
    wanted_kind: u32,
    path: &Path,
) -> Result<(), FileError> {
    let path = path.to_owned();
    let known = MAGIC.len().min(bytes.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(FileError::NotABus { path, what: "its first bytes are wrong".to_owned() });
    }
    if bytes.len() < wanted_bytes {
        return Err(FileError::Truncated { path, found: file_bytes, wanted: wanted_bytes as u64 });
    }
    let word = |offset| get_u32(bytes, offset);
    if word(offset_of!(RawFileHeader, endianness)) != ENDIANNESS {
        return Err(FileError::EndiannessMismatch { path });
    }
    let version = word(offset_of!(RawFileHeader, version));
    if version != LAYOUT_VERSION {
        return Err(FileError::VersionMismatch { path, found: version, supported: LAYOUT_VERSION });
    }
    let architecture = word(offset_of!(RawFileHeader, architecture));
    if architecture != platform::ARCHITECTURE {
        return Err(FileError::PlatformMismatch {
            path,
            property: "the architecture",
            found: platform::architecture_name(architecture),
            here: platform::architecture_name(platform::ARCHITECTURE),
            hint: "a bus belongs to one kind of machine, create another one here",
        });
    }
    let page_bytes = word(offset_of!(RawFileHeader, page_bytes));
    if page_bytes != platform::page_bytes() {
        return Err(FileError::PlatformMismatch {
            path,
            property: "a page size of",
            found: format!("{page_bytes} bytes"),
            here: format!("{} bytes", platform::page_bytes()),
            hint: "remove the bus with `toroni rm NAME` and create it again",
        });
    }
    let kind = word(offset_of!(RawFileHeader, kind));
    if kind != wanted_kind {
        let what = format!("it is a file of kind {kind}, not {wanted_kind}");
        return Err(FileError::NotABus { path, what });
    }
    Ok(())
}

/// Checks that there are no features of a bus that this release does not know, and must, to do something with it.
fn check_features(unknown: u32, action: &'static str, path: &Path) -> Result<(), FileError> {
    if unknown != 0 {
        return Err(FileError::UnknownFeatures { path: path.to_owned(), unknown, action });
    }
    Ok(())
}

fn check_size(found: u64, wanted: u64, path: &Path) -> Result<(), FileError> {
    if found < wanted {
        return Err(FileError::Truncated { path: path.to_owned(), found, wanted });
    }
    Ok(())
}

fn check_checksum(bytes: &[u8], path: &Path) -> Result<(), FileError> {
    if get_u64(bytes, CHECKSUM_OFFSET) == checksum(bytes) {
        return Ok(());
    }
    Err(FileError::HeaderDamaged { path: path.to_owned(), what: "wrong checksum".to_owned() })
}

fn put_checksum(bytes: &mut [u8]) {
    let sum = checksum(bytes);
    put_u64(bytes, CHECKSUM_OFFSET, sum);
}

/// FNV-1a over everything but the checksum itself. It detects accidents, not deliberate changes.
fn checksum(bytes: &[u8]) -> u64 {
    let field = CHECKSUM_OFFSET..CHECKSUM_OFFSET + 8;
    bytes
        .iter()
        .enumerate()
        .filter(|(place, _)| !field.contains(place))
        .fold(0xcbf2_9ce4_8422_2325, |sum: u64, (_, byte)| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

impl KernelContext {
    /// Returns the bytes at [`KERNEL_CONTEXT_OFFSET`].
    fn encode(&self) -> [u8; size_of::<RawKernelContext>()] {
        let mut bytes = [0; size_of::<RawKernelContext>()];
        bytes[..16].copy_from_slice(&self.boot_id);
        put_u64(&mut bytes, offset_of!(RawKernelContext, pid_namespace), self.pid_namespace);
        put_u64(&mut bytes, offset_of!(RawKernelContext, net_namespace), self.net_namespace);
        bytes
    }

    fn decode(bytes: &[u8; size_of::<RawKernelContext>()]) -> Self {
        Self {
            boot_id: array(bytes, offset_of!(RawKernelContext, boot_id)),
            pid_namespace: get_u64(bytes, offset_of!(RawKernelContext, pid_namespace)),
            net_namespace: get_u64(bytes, offset_of!(RawKernelContext, net_namespace)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Policy;
    use crate::shm::testing::small;
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::time::Duration;

    fn header(settings: Settings) -> Header {
        Header::new(&settings, &Permissions::default())
    }

    fn decode(bytes: &[u8]) -> Result<Header, FileError> {
        let file_bytes = header(small()).ring_bytes();
        Header::decode(bytes, file_bytes, Path::new("ring"))
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let base = small();
        let limit = Duration::from_millis(7);
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 1, 2), 5000);
        for settings in [
            base,
            Settings { policy: Policy::Wait { limit: None }, ..base },
            Settings { policy: Policy::Wait { limit: Some(limit) }, ..base },
            Settings { policy: Policy::Overwrite, lock: LockKind::Robust, ..base },
            Settings { policy: Policy::Bounded { budget: limit, per: limit * 2 }, ..base },
            Settings { notify: NotifyKind::Datagram, persistent: true, ..base },
            Settings { notify: NotifyKind::Multicast { group: None }, ..base },
            Settings { notify: NotifyKind::Multicast { group: Some(group) }, ..base },
            Settings { huge_pages: true, capacity: 2 << 20, ..base },
        ] {
            for permissions in [
                Permissions::default(),
                Permissions { mode: Some(0o640), writers: Some(7), readers: Some(0) },
            ] {
                let header = Header::new(&settings, &permissions);
                let decoded =
                    Header::decode(&header.encode(), header.ring_bytes(), Path::new("ring"));
                assert_eq!(decoded.unwrap(), header);
            }
        }
    }

    #[test]
    fn each_mismatch_has_its_error() {
        let good = header(small()).encode();
        let with = |offset: usize, change: &dyn Fn(u32) -> u32| {
            let mut bytes = good;
            put_u32(&mut bytes, offset, change(get_u32(&good, offset)));
            decode(&bytes).unwrap_err()
        };
        use FileError as E;
        assert!(matches!(with(0, &|magic| magic + 1), E::NotABus { .. }));
        assert!(matches!(
            with(offset_of!(RawFileHeader, endianness), &u32::swap_bytes),
            E::EndiannessMismatch { .. }
        ));
        assert!(matches!(
            with(offset_of!(RawFileHeader, version), &|_| 77),
            E::VersionMismatch { found: 77, supported: LAYOUT_VERSION, .. }
        ));
        assert!(matches!(
            with(offset_of!(RawFileHeader, architecture), &|_| 40),
            E::PlatformMismatch { property: "the architecture", .. }
        ));
        assert!(matches!(
            with(offset_of!(RawFileHeader, page_bytes), &|_| 16384),
            E::PlatformMismatch { property: "a page size of", .. }
        ));
        assert!(matches!(
            with(offset_of!(RawFileHeader, kind), &|_| KIND_READERS),
            E::NotABus { .. }
        ));
        assert!(matches!(
            with(offset_of!(RawHeader, capacity), &|capacity| capacity * 2),
            E::HeaderDamaged { what, .. } if what.contains("checksum")
        ));
        for length in 0..good.len() {
            assert!(matches!(decode(&good[..length]), Err(E::Truncated { .. })), "{length}");
        }
        let file_bytes = header(small()).ring_bytes();
        let path = Path::new("ring");
        assert!(matches!(
            Header::decode(&good, file_bytes - 1, path),
            Err(E::Truncated { found, wanted, .. }) if found + 1 == wanted
        ));
        assert!(matches!(
            Header::decode(&good, file_bytes + 1, path),
            Err(E::HeaderDamaged { .. })
        ));
    }

    /// Gives every field hostile values and a matching checksum. The result is an error, or settings in range.
    #[test]
    fn any_value_is_survived() {
        let good = header(small()).encode();
        let hostile = [0, 1, 2, 3, 4, 255, 1 << 16, 1 << 31, u32::MAX - 7, u32::MAX];
        for offset in (0..KERNEL_CONTEXT_OFFSET).step_by(4) {
            for low in hostile {
                for high in hostile {
                    let mut bytes = good;
                    put_u32(&mut bytes, offset, low);
                    if offset + 8 <= KERNEL_CONTEXT_OFFSET {
                        put_u32(&mut bytes, offset + 4, high);
                    }
                    put_checksum(&mut bytes[..KERNEL_CONTEXT_OFFSET]);
                    for file_bytes in [0, 4096, u64::MAX] {
                        if let Ok(header) = Header::decode(&bytes, file_bytes, Path::new("ring")) {
                            header.settings.validate().unwrap();
                            assert_eq!(header.ring_bytes(), file_bytes);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn features_of_a_later_release_are_named() {
        let mut bytes = header(small()).encode();
        put_u32(&mut bytes, offset_of!(RawHeader, must_write), 4);
        put_checksum(&mut bytes[..KERNEL_CONTEXT_OFFSET]);
        // It may subscribe.
        let header = decode(&bytes).unwrap();
        let refused = header.check_may_publish(Path::new("bus")).unwrap_err();
        assert!(matches!(refused, FileError::UnknownFeatures { unknown: 4, .. }));
        assert_eq!(decode(&header.encode()).unwrap().must_write, 4);
        put_u32(&mut bytes, offset_of!(RawHeader, must_read), 1 << 31);
        put_checksum(&mut bytes[..KERNEL_CONTEXT_OFFSET]);
        let refused = decode(&bytes).unwrap_err();
        assert!(refused.to_string().contains("(bits 0x80000000), so it cannot open it"));
    }

    #[test]
    fn files_of_another_bus_are_refused() {
        let (ours, other) = (header(small()), header(small()));
        let bytes = other.encode_file(BusFile::Readers);
        let file_bytes = ours.file_bytes(BusFile::Readers);
        let path = Path::new("readers");
        let check = |header: &Header, file| header.check_file(file, &bytes, file_bytes, path);
        check(&other, BusFile::Readers).unwrap();
        assert!(matches!(check(&ours, BusFile::Readers), Err(FileError::ForeignFile { .. })));
        assert!(matches!(check(&other, BusFile::Publishers), Err(FileError::NotABus { .. })));
        assert!(matches!(
            other.check_file(BusFile::Readers, &bytes, file_bytes - 1, path),
            Err(FileError::Truncated { .. })
        ));
    }

    #[test]
    fn a_robust_lock_stays_at_home() {
        let path = Path::new("bus");
        let refused = |header: &Header| header.check_robust(path).is_err();
        let robust = header(Settings { lock: LockKind::Robust, ..small() });
        assert!(!refused(&robust));
        let other = KernelContext { pid_namespace: 1, ..robust.kernel_context };
        assert!(refused(&Header { kernel_context: other, ..robust.clone() }));
        assert!(refused(&Header { libc: "glibc 2.0".to_owned(), ..robust.clone() }));
        assert!(!refused(&Header { kernel_context: other, ..header(small()) }));
    }

    #[test]
    fn multicast_stays_in_its_network() {
        let path = Path::new("bus");
        let notify = NotifyKind::Multicast { group: None };
        let header = header(Settings { notify, ..small() });
        header.check_network(path).unwrap();
        let kernel_context = KernelContext { net_namespace: 1, ..header.kernel_context };
        assert!(matches!(
            Header { kernel_context, ..header }.check_network(path),
            Err(FileError::NetworkNamespace { .. })
        ));
    }
}
