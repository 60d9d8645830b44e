//! The stages that need the plan, up to the program itself.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::Ordering;

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, symlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mount::{MountAttrFlags, MoveMountFlags, move_mount};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{chdir, umask};
use rustix::system::sethostname;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::park::{READ_ONLY, tmpfs};
use super::{Cell, PLANNED, PROCEED, READY};
use crate::planned::{StepKind, Text, control};
use crate::sys::{self, Outcome, borrow};

/// Where descriptors wait for their place, above every number that a plan may name.
const ABOVE: RawFd = 256;

pub fn hand_over(cell: &mut Cell<'_>) -> Outcome<()> {
    let mut byte = [0_u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(128), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut byte)];
    let message = recvmsg(
        borrow(cell.sync),
        &mut slices,
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut count = 0;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            for fd in fds {
                // Up and out of the way of the numbers that the plan names.
                let high = fcntl_dupfd_cloexec(&fd, ABOVE)?.into_raw_fd();
                *cell.received.get_mut(count).ok_or(Errno::TOOBIG)? = high;
                count += 1;
            }
        }
    }
    let expected = cell.page.fds + cell.page.trees;
    if message.bytes == 0 {
        return Err(Errno::PIPE);
    }
    if byte[0] != PLANNED || count != expected as usize {
        return Err(Errno::BADMSG);
    }
    cell.sync = fcntl_dupfd_cloexec(borrow(cell.sync), ABOVE)?.into_raw_fd();
    Ok(())
}

pub fn hostname(cell: &mut Cell<'_>) -> Outcome<()> {
    if !cell.page.enforces(const { control("uts") }) {
        return Ok(());
    }
    sethostname(
        cell.page
            .str(cell.page.hostname)
            .ok_or(Errno::INVAL)?
            .to_bytes(),
    )?;
    rustix::system::setdomainname(b"(none)")
}

pub fn mounts(cell: &mut Cell<'_>) -> Outcome<()> {
    let page = cell.page;
    let text = |text: Text| page.str(text).ok_or(Errno::INVAL);
    let mut tree = page.fds as usize;
    for step in page.step.get(..page.steps as usize).ok_or(Errno::INVAL)? {
        let at = text(step.at)?;
        if step.kind == StepKind::Dir as u32 {
            match mkdirat(CWD, at, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        } else if step.kind == StepKind::File as u32 {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            drop(openat(CWD, at, flags, Mode::from_raw_mode(0o444))?);
        } else if step.kind == StepKind::Symlink as u32 {
            symlinkat(text(step.to)?, CWD, at)?;
        } else if step.kind == StepKind::Attach as u32 {
            let from = cell.received.get(tree).copied().ok_or(Errno::INVAL)?;
            tree += 1;
            attach_at(from, at)?;
        } else {
            let more = MountAttrFlags::MOUNT_ATTR_NOEXEC;
            let mount = tmpfs(text(step.to)?, text(step.more)?, c"0700", more)?;
            attach_at(mount, at)?;
        }
    }
    Ok(())
}

/// Follows no link on the way: a bound tree may hold any.
fn attach_at(from: RawFd, at: &std::ffi::CStr) -> Outcome<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let place = openat2(CWD, at, flags, Mode::empty(), resolve)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(borrow(from), c"", &place, c"", flags)
}

pub fn seal_root(cell: &mut Cell<'_>) -> Outcome<()> {
    let page = cell.page;
    if cell.root >= 0 && page.enforces(const { control("read_only") }) {
        sys::mount_attributes(cell.root, READ_ONLY, false)?;
    }
    umask(Mode::from_raw_mode(0o077));
    chdir(page.str(page.cwd).ok_or(Errno::INVAL)?)
}

/// The program is opened now, while its path can still be walked, and run by descriptor.
pub fn fds(cell: &mut Cell<'_>) -> Outcome<()> {
    let page = cell.page;
    let path = page.str(page.program).ok_or(Errno::INVAL)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let program = openat(CWD, path, flags, Mode::empty())?;
    cell.program = fcntl_dupfd_cloexec(&program, ABOVE)?.into_raw_fd();
    // Before its number may become one of the tool's, or is closed with the rest.
    drop(program);
    let numbers = page.fd.get(..page.fds as usize).ok_or(Errno::INVAL)?;
    let mut keep = [RawFd::MAX; crate::planned::FDS_MAX + 2];
    for ((&number, &from), slot) in numbers.iter().zip(&cell.received).zip(&mut keep) {
        sys::place(from, number)?;
        *slot = number;
    }
    if !page.enforces(const { control("close_fds") }) {
        return Ok(());
    }
    let count = numbers.len() + 2;
    keep[count - 2] = cell.sync;
    keep[count - 1] = cell.program;
    keep[..count].sort_unstable();
    sys::close_all_but(&keep[..count])
}

pub fn landlock(cell: &mut Cell<'_>) -> Outcome<()> {
    let page = cell.page;
    if !page.enforces(const { control("landlock") }) {
        return Ok(());
    }
    // What each ABI handles (Documentation/userspace-api/landlock.rst): 13 file accesses, then
    // REFER (2), TRUNCATE (3), IOCTL_DEV (5); TCP bind and connect (4); abstract sockets and
    // signals (6).
    let (files, words) = match page.landlock_abi {
        0 => return Err(Errno::OPNOTSUPP),
        1 => (0x1fff_u64, 1),
        2 => (0x3fff, 1),
        3 => (0x7fff, 1),
        4 => (0x7fff, 2),
        5 => (0xffff, 2),
        _ => (0xffff, 3),
    };
    let attributes = [files, 0b11, 0b11];
    let ruleset = sys::landlock_ruleset(attributes.get(..words).ok_or(Errno::INVAL)?)?;
    // Accesses that a file, not a folder, can be given; the kernel refuses the others on it.
    const OF_A_FILE: u64 = 0b1100_0000_0000_0111;
    for rule in page.rule.get(..page.rules as usize).ok_or(Errno::INVAL)? {
        let path = page.str(rule.at).ok_or(Errno::INVAL)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = openat(CWD, path, flags, Mode::empty())?;
        let folder = FileType::from_raw_mode(fstat(&place)?.st_mode) == FileType::Directory;
        let access = rule.access & files & if folder { u64::MAX } else { OF_A_FILE };
        sys::landlock_rule(ruleset, place.into_raw_fd(), access)?;
    }
    sys::landlock_restrict(ruleset)
}

pub fn capabilities(cell: &mut Cell<'_>) -> Outcome<()> {
    if !cell.page.enforces(const { control("capabilities") }) {
        return keep_over_exec();
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets)
}

/// For a test of what a tool could do with them: exec would clear what is not ambient.
fn keep_over_exec() -> Outcome<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets)?;
    for one in sets.permitted.iter() {
        rustix::thread::configure_capability_in_ambient_set(one, true)?;
    }
    Ok(())
}

/// Process 1 stays as an init that reaps, out of the tool's reach: not dumpable, nothing open. It
/// alone can clear the signal that ties it to the launcher, so no tool can outlive that.
pub fn init(cell: &mut Cell<'_>) -> Outcome<()> {
    let Some((tool, _)) = sys::clone_process(0)? else {
        if cell.page.enforces(const { control("session") }) {
            rustix::process::setsid()?;
        }
        return Ok(());
    };
    // Failure leaves descriptors open in a process that runs no foreign code.
    let _ = sys::close_all_but(&[]);
    loop {
        match sys::reap(-1) {
            Ok(reaped) if reaped.pid == tool => {
                let status = &cell.page.report.status;
                status.store(reaped.status.wrapping_add(1), Ordering::Release);
                sys::exit(0);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => sys::exit(125),
        }
    }
}

pub fn rlimits(cell: &mut Cell<'_>) -> Outcome<()> {
    let page = cell.page;
    for limit in page.limit.get(..page.limits as usize).ok_or(Errno::INVAL)? {
        sys::resource_limit(limit.resource, limit.soft, limit.hard)?;
    }
    Ok(())
}

pub fn seccomp(cell: &mut Cell<'_>) -> Outcome<()> {
    let page = cell.page;
    if !page.enforces(const { control("seccomp") }) {
        return Ok(());
    }
    sys::load_filter(page.bpf.get(..page.bpf_len as usize).ok_or(Errno::INVAL)?)
}

/// Waits for the launcher's word on the receipt, then becomes the program.
pub fn execute(cell: &mut Cell<'_>) -> Outcome<()> {
    let sync = borrow(cell.sync);
    rustix::io::write(sync, &[READY])?;
    let mut answer = [0_u8; 1];
    if rustix::io::read(sync, &mut answer)? != 1 || answer[0] != PROCEED {
        return Err(Errno::CANCELED);
    }
    Err(sys::execute(cell.program, cell.page))
}
