//! The socket to the lane: packets with descriptors in, answers out, never blocking.
//!
//! A lane that does not read must not stop the launcher from watching deadlines, so answers wait in
//! a bounded queue; a full one counts as a lane that is gone. Called by `launcher`.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};

use crate::wire::{Answer, PACKET_MAX};

const QUEUE_MAX: usize = 4096;
/// Most descriptors on one request.
pub const PASSED_MAX: usize = 16;

/// What came.
pub enum Incoming {
    /// A request and its descriptors.
    Packet(usize, Vec<OwnedFd>),
    /// Nothing for now.
    Nothing,
    /// The lane is gone.
    Closed,
    /// Larger than a packet may be, or with too many descriptors.
    Truncated,
}

/// See the module.
pub struct Link {
    socket: OwnedFd,
    waiting: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
}

impl Link {
    /// Takes the socket over.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        sockopt::set_socket_send_buffer_size(&socket, 1 << 20)?;
        let waiting = VecDeque::new();
        Ok(Self { socket, waiting })
    }

    /// For the event loop.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether answers wait for room.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reads one packet into `buffer`, which is [`PACKET_MAX`] long.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Incoming> {
        debug_assert_eq!(buffer.len(), PACKET_MAX);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let message = match recvmsg(&self.socket, &mut slices, &mut control, flags) {
            Ok(message) => message,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Incoming::Nothing),
            Err(Errno::CONNRESET) => return Ok(Incoming::Closed),
            Err(errno) => return Err(errno.into()),
        };
        let mut fds = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = part {
                fds.extend(passed);
            }
        }
        if message.bytes == 0 {
            return Ok(Incoming::Closed);
        }
        if message
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            return Ok(Incoming::Truncated);
        }
        Ok(Incoming::Packet(message.bytes, fds))
    }

    /// Sends an answer, or queues it.
    pub fn answer(&mut self, answer: &Answer, fd: Option<OwnedFd>) -> io::Result<()> {
        if self.waiting.len() >= QUEUE_MAX {
            return Err(io::Error::other("the lane does not read its answers"));
        }
        self.waiting.push_back((answer.pack(), fd));
        self.flush()
    }

    /// Sends what waits, as far as there is room.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some((packet, fd)) = self.waiting.front() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let passed: Vec<BorrowedFd<'_>> = fd.iter().map(AsFd::as_fd).collect();
            if !passed.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(&passed));
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.socket, &[IoSlice::new(packet)], &mut control, flags) {
                Ok(_) => {
                    self.waiting.pop_front();
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                // The next read says that the lane is gone.
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    self.waiting.clear();
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
