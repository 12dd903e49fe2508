//! The memory that the kernel needs for an operation besides the buffer, at an address that does not change:
//! the header of a datagram, and addresses.

use crate::operation::{Address, Request, of_peer};
use rustix::net::SocketAddrAny;
use rustix::net::addr::SocketAddrStorage;
use std::net::SocketAddr;
use std::ptr::NonNull;

/// One area for each operation entry that ever needed one, by its index. They are cached like the operations.
#[derive(Default)]
pub(super) struct Areas(Vec<Option<NonNull<Area>>>);

// SAFETY: the areas belong to this table, as boxes would; they are pointers only because the kernel writes
// to them while the table is used.
unsafe impl Send for Areas {}

#[repr(C)]
struct Area {
    header: libc::msghdr,
    span: libc::iovec,
    address: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl Areas {
    /// Prepares the header of a datagram: its buffer, and the request's address or the space for the sender's.
    pub(super) fn header(&mut self, index: u32, request: &Request) -> *mut libc::msghdr {
        let area = self.area(index).as_ptr();
        // A write to a connected socket names no peer.
        let names_peer = request.kind.is_reading() || request.address.is_some();
        let length = self.address(index, request).1;
        // SAFETY: the area is alive, and no operation that uses it is in progress: its operation is only about
        // to start. This takes raw pointers only, no references.
        unsafe {
            (*area).span = libc::iovec {
                iov_base: request.memory.pointer().cast(),
                iov_len: request.memory.length(),
            };
            let header = &raw mut (*area).header;
            header.write_bytes(0, 1);
            (*header).msg_iov = &raw mut (*area).span;
            (*header).msg_iovlen = 1;
            if names_peer {
                (*header).msg_name = (&raw mut (*area).address).cast();
                (*header).msg_namelen = length;
            }
            header
        }
    }

    /// Writes the request's address, if it has one. Returns its location and length; otherwise those of the
    /// space for an address.
    pub(super) fn address(
        &mut self,
        index: u32,
        request: &Request,
    ) -> (*mut libc::sockaddr, libc::socklen_t, *mut libc::socklen_t) {
        const SPACE: libc::socklen_t = 128;
        let area = self.area(index).as_ptr();
        let wanted = request.address.as_ref().map(Address::to_any);
        let length = wanted.as_ref().map_or(SPACE, SocketAddrAny::addr_len);
        // SAFETY: as in `header`; the address is `length` bytes long, which fit into the storage.
        unsafe {
            let address = (&raw mut (*area).address).cast::<u8>();
            if let Some(wanted) = wanted {
                address.copy_from_nonoverlapping(wanted.as_ptr().cast(), length as usize);
            }
            (*area).length = length;
            (address.cast(), length, &raw mut (*area).length)
        }
    }

    /// Returns the address of a datagram's sender, and whether the datagram's end is lost. The operation is
    /// complete.
    pub(super) fn received(&mut self, index: u32) -> (Option<SocketAddr>, bool) {
        let area = self.area(index).as_ptr();
        // SAFETY: the operation is complete, so the kernel writes no more; it has filled the header.
        let (length, flags) = unsafe { ((*area).header.msg_namelen, (*area).header.msg_flags) };
        (Self::read(area, length), flags & libc::MSG_TRUNC != 0)
    }

    /// Returns the address of the accepted peer. The operation is complete.
    pub(super) fn accepted(&mut self, index: u32) -> Option<SocketAddr> {
        let area = self.area(index).as_ptr();
        // SAFETY: as above.
        let length = unsafe { (*area).length };
        Self::read(area, length)
    }

    fn read(area: *mut Area, length: libc::socklen_t) -> Option<SocketAddr> {
        // The address of an unnamed local socket is its family only, or empty.
        if length < 4 || length as usize > size_of::<libc::sockaddr_storage>() {
            return None;
        }
        // SAFETY: the kernel has written an address of that length, no operation is in progress any more.
        let address = unsafe {
            SocketAddrAny::read((&raw const (*area).address).cast::<SocketAddrStorage>(), length)
        };
        of_peer(Some(address))
    }

    fn area(&mut self, index: u32) -> NonNull<Area> {
        let index = index as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        *self.0[index].get_or_insert_with(|| {
            // SAFETY: all of it may be zero: numbers, and pointers that are not followed.
            let area = Box::new(unsafe { std::mem::zeroed::<Area>() });
            NonNull::from(Box::leak(area))
        })
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        for area in self.0.drain(..).flatten() {
            // SAFETY: made by `Box::leak` above. The provider is dropped only when nothing is in progress:
            // otherwise the proactor leaks it.
            drop(unsafe { Box::from_raw(area.as_ptr()) });
        }
    }
}
