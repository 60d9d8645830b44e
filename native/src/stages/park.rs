//! The stages that need no plan: a cell goes through them ahead of the call that it will serve.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{
    Gid, Signal, Uid, fchdir, pivot_root, set_parent_process_death_signal, setsid,
};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::{CELL_ID, Cell, MAPPED};
use crate::planned::control;
use crate::sys::{self, Outcome, borrow};

/// `MOUNT_ATTR_*` (linux/mount.h).
pub const READ_ONLY: u64 = 0x1;
pub const NO_SUID: u64 = 0x2;
pub const NO_EXEC: u64 = 0x8;

pub fn close(cell: &mut Cell<'_>) -> Outcome<()> {
    sys::reset_signals()?;
    if cell.page.enforces(const { control("session") }) {
        // No controlling terminal, so none to type into (TIOCSTI).
        setsid()?;
    }
    sys::new_session_keyring()?;
    if !cell.page.enforces(const { control("close_fds") }) {
        return Ok(());
    }
    let mut keep = [RawFd::MAX; 8];
    let count = cell.entries.len() + 1;
    let (Some(slots), Some(last)) = (keep.get_mut(..count - 1), count.checked_sub(1)) else {
        return Err(Errno::TOOBIG);
    };
    slots.copy_from_slice(cell.entries);
    keep[last] = cell.sync;
    keep[..count].sort_unstable();
    sys::close_all_but(&keep[..count])
}

/// Before the cgroup namespace is made: it is rooted where the process is then.
pub fn cgroup(cell: &mut Cell<'_>) -> Outcome<()> {
    for &entry in cell.entries {
        // The files were opened by the launcher, and the kernel asks the opener's rights. "0" is
        // the writer itself.
        rustix::io::write(borrow(entry), b"0")?;
    }
    sys::unshare_cgroup()
}

/// The launcher writes the maps: only it may map a uid that is not its own.
pub fn maps(cell: &mut Cell<'_>) -> Outcome<()> {
    let mut message = [0_u8; 1];
    let count = rustix::io::read(borrow(cell.sync), &mut message)?;
    if count == 1 && message[0] == MAPPED {
        Ok(())
    } else {
        Err(Errno::PIPE)
    }
}

pub fn ids(_: &mut Cell<'_>) -> Outcome<()> {
    set_thread_groups(&[])?;
    let gid = Gid::from_raw(CELL_ID);
    set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(CELL_ID);
    set_thread_res_uid(uid, uid, uid)?;
    // After the change of uid, which clears it. A launcher that died before this line has closed
    // the socket, and the next read from it ends the process.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // What stays behind as the cell's init holds a copy of the launcher's memory: no tool of the
    // same uid may look into it.
    sys::control(libc::PR_SET_DUMPABLE, 0)
}

/// The limit is this namespace's own, and is written through the host's /proc before that is gone.
pub fn userns(cell: &mut Cell<'_>) -> Outcome<()> {
    if !cell.page.enforces(const { control("userns_limit") }) {
        return Ok(());
    }
    let limit = openat(
        CWD,
        c"/proc/sys/user/max_user_namespaces",
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::io::write(&limit, b"0").map(drop)
}

pub fn root(cell: &mut Cell<'_>) -> Outcome<()> {
    mount_change(
        c"/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    let root = tmpfs(c"256k", c"512", c"0755", MountAttrFlags::empty())?;
    // Any folder that every machine has: what it hides is gone after the pivot.
    attach(root, CWD.as_raw_fd(), c"/tmp")?;
    for name in [c"dev", c"proc"] {
        mkdirat(borrow(root), name, Mode::from_raw_mode(0o755))?;
    }
    cell.root = root;
    Ok(())
}

/// A detached tmpfs of the cell's uid.
pub fn tmpfs(size: &CStr, inodes: &CStr, mode: &CStr, more: MountAttrFlags) -> Outcome<RawFd> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let context = context.into_raw_fd();
    for (key, value) in [
        (c"size", size),
        (c"nr_inodes", inodes),
        (c"mode", mode),
        (c"uid", c"1000"),
        (c"gid", c"1000"),
    ] {
        fsconfig_set_string(borrow(context), key, value)?;
    }
    mounted(context, more)
}

fn mounted(context: RawFd, more: MountAttrFlags) -> Outcome<RawFd> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | more;
    fsconfig_create(borrow(context))?;
    let mount = fsmount(borrow(context), FsMountFlags::FSMOUNT_CLOEXEC, flags)?;
    Ok(mount.into_raw_fd())
}

/// Mounts the detached tree `from` at `path` below the folder `at`.
pub fn attach(from: RawFd, at: RawFd, path: &CStr) -> Outcome<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(borrow(from), c"", borrow(at), path, flags)
}

/// A procfs of the cell's own pid namespace: only processes, and of those only what the reader
/// could trace (so not the init).
pub fn proc(cell: &mut Cell<'_>) -> Outcome<()> {
    if !cell.page.enforces(const { control("pid") }) {
        // A procfs of the host's pid namespace is the host's to mount.
        return Ok(());
    }
    let context = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?.into_raw_fd();
    fsconfig_set_string(borrow(context), c"subset", c"pid")?;
    fsconfig_set_string(borrow(context), c"hidepid", c"ptraceable")?;
    let flags = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = mounted(context, flags)?;
    attach(mount, cell.root, c"proc")
}

pub fn dev(cell: &mut Cell<'_>) -> Outcome<()> {
    let mount = tmpfs(c"64k", c"64", c"0755", MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
    attach(mount, cell.root, c"dev")?;
    for (name, path) in [
        (c"null", c"/dev/null"),
        (c"zero", c"/dev/zero"),
        (c"full", c"/dev/full"),
        (c"random", c"/dev/random"),
        (c"urandom", c"/dev/urandom"),
    ] {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(borrow(mount), name, flags, Mode::from_raw_mode(0o444))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let node = open_tree(CWD, path, flags)?.into_raw_fd();
        // Read-only means the node: a device takes writes all the same.
        sys::mount_attributes(node, READ_ONLY | NO_SUID | NO_EXEC, false)?;
        attach(node, mount, name)?;
    }
    for (name, target) in [
        (c"fd", c"/proc/self/fd"),
        (c"stdin", c"/proc/self/fd/0"),
        (c"stdout", c"/proc/self/fd/1"),
        (c"stderr", c"/proc/self/fd/2"),
    ] {
        symlinkat(target, borrow(mount), name)?;
    }
    sys::mount_attributes(mount, READ_ONLY, false)
}

/// The new root over the old one, and the old one off: after this no path leads to the host.
pub fn pivot(cell: &mut Cell<'_>) -> Outcome<()> {
    if !cell.page.enforces(const { control("pivot") }) {
        cell.root = -1;
        return unmount(c"/tmp", UnmountFlags::DETACH);
    }
    fchdir(borrow(cell.root))?;
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}

pub fn bounding(cell: &mut Cell<'_>) -> Outcome<()> {
    if cell.page.enforces(const { control("bounding") }) {
        sys::drop_bounding_set()?;
    }
    Ok(())
}

/// Uid 0 gains nothing by being uid 0, keeps nothing over a change of uid, and no ambient
/// capability can be raised; all locked.
pub fn securebits(cell: &mut Cell<'_>) -> Outcome<()> {
    const ALL_AND_LOCKED: u64 = 0b1110_1111;
    if cell.page.enforces(const { control("capabilities") }) {
        sys::control(libc::PR_SET_SECUREBITS, ALL_AND_LOCKED)?;
    }
    Ok(())
}

pub fn no_new_privs(cell: &mut Cell<'_>) -> Outcome<()> {
    if cell.page.enforces(const { control("no_new_privs") }) {
        sys::control(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    }
    Ok(())
}
