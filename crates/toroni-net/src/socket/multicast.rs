//! Joining and leaving groups on a named interface.
//!
//! The kernel counts memberships per socket, and a socket that is closed leaves. A membership survives that its interface
//! is down, but not that it is removed: an interface of the same name is then another one, with another index.

use super::datagram::SocketError;
use crate::host::interface::Interface;
use rustix::fd::AsFd;
use rustix::net::sockopt;
use std::net::{IpAddr, Ipv4Addr};

/// Joins a group on one interface.
///
/// # Errors
/// If the socket has joined it there already, has joined too many groups (`net.ipv4.igmp_max_memberships`), or the
/// interface is gone.
pub fn join(socket: &impl AsFd, group: IpAddr, on: &Interface) -> Result<(), SocketError> {
    let result = match group {
        IpAddr::V4(group) => sockopt::set_ip_add_membership_with_ifindex(
            socket,
            &group,
            &Ipv4Addr::UNSPECIFIED,
            on.index,
        ),
        IpAddr::V6(group) => sockopt::set_ipv6_add_membership(socket, &group, on.index),
    };
    result.map_err(|error| SocketError::new("join", group, on, error.into()))
}

/// Leaves a group on one interface.
///
/// # Errors
/// If the socket is not in the group there.
pub fn leave(socket: &impl AsFd, group: IpAddr, on: &Interface) -> Result<(), SocketError> {
    let result = match group {
        IpAddr::V4(group) => sockopt::set_ip_drop_membership_with_ifindex(
            socket,
            &group,
            &Ipv4Addr::UNSPECIFIED,
            on.index,
        ),
        IpAddr::V6(group) => sockopt::set_ipv6_drop_membership(socket, &group, on.index),
    };
    result.map_err(|error| SocketError::new("leave", group, on, error.into()))
}
