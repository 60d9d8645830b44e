//! The one module that may say `unsafe`: raw system calls that no library covers, and the memory
//! that a launcher shares with a cell.
//!
//! Owns the reasons why each call is sound. Holds no policy and no order: that is `stages`.
//! Everything a cell's process uses here is free of allocation, of locks and of panics.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_long};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use rustix::io::Errno;

use crate::planned::{ARGV_MAX, BPF_MAX, ENV_MAX, Page, Text};

/// What a raw call came to.
pub type Outcome<T> = Result<T, Errno>;

fn checked(value: c_long) -> Outcome<c_long> {
    if value < 0 {
        Err(last_errno())
    } else {
        Ok(value)
    }
}

fn last_errno() -> Errno {
    // SAFETY: the address is that of this thread's errno, valid while the thread lives.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// A [`Page`] in memory that stays shared over a clone.
pub struct SharedPage {
    page: NonNull<Page>,
}

impl SharedPage {
    /// A zeroed page: an empty plan and an empty report.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address that the kernel chooses touches no memory
        // that exists.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Page>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(address.cast::<Page>()) {
            Some(page) if address != libc::MAP_FAILED => Ok(Self { page }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The page. The plan in it does not change once it is handed over.
    pub fn get(&self) -> &Page {
        // SAFETY: the mapping is as large as a Page, aligned to a page, zeroed (valid for every
        // field: integers, atomics, arrays of them) and lives until `drop`.
        unsafe { self.page.as_ref() }
    }

    /// The page, to be filled. Only before the hand-over: the other process reads it after.
    pub fn get_mut(&mut self) -> &mut Page {
        // SAFETY: as in `get`; `&mut self` makes this the only reference in this process, and the
        // cell's process looks at the plan only after the message that hands it over.
        unsafe { self.page.as_mut() }
    }

    /// Keeps the page out of processes that are cloned later: a cell never holds another's plan.
    pub fn hide_from_later_children(&self) -> io::Result<()> {
        // SAFETY: the range is exactly the mapping; the advice changes nothing in this process.
        let result = unsafe {
            libc::madvise(
                self.page.as_ptr().cast(),
                size_of::<Page>(),
                libc::MADV_DONTFORK,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, and `&mut self` shows that no reference from
        // `get` is alive.
        unsafe {
            libc::munmap(self.page.as_ptr().cast(), size_of::<Page>());
        }
    }
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// Copies this process as `fork` does, with `CLONE_*` flags. `None` in the new process; in the
/// old one its pid and its pidfd.
///
/// The caller must be single-threaded, as the launcher is: then the copy finds no lock held.
pub fn clone_process(flags: u64) -> Outcome<Option<(i32, OwnedFd)>> {
    let mut pidfd: RawFd = -1;
    let arguments = CloneArgs {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: the struct has the kernel's layout (VER0, 64 bytes) and outlives the call; `pidfd`
    // is writable. No CLONE_VM and no stack: the copy has memory of its own, and goes on from here.
    let result = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<CloneArgs>(),
        )
    };
    let pid = checked(result)?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: clone3 succeeded, so `pidfd` is a new descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Some((pid as i32, pidfd)))
}

/// A descriptor by number, in a process that never closes it behind the borrow's back.
pub fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: callers pass numbers that they keep open until exec or exit; -1 is never passed.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Takes over the descriptor that the lane left at `fd`.
pub fn inherit(fd: RawFd) -> io::Result<OwnedFd> {
    rustix::io::fcntl_getfd(borrow(fd))?;
    // SAFETY: it is open (the line above), and `main` calls this once, before anything is opened.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC)?;
    Ok(owned)
}

/// Closes every descriptor but those of `keep`, which must be sorted.
pub fn close_all_but(keep: &[RawFd]) -> Outcome<()> {
    let mut first: u32 = 0;
    for &fd in keep {
        let fd = fd as u32;
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Outcome<()> {
    // SAFETY: touches descriptors only. Its one caller runs in a process whose owners of
    // descriptors are never dropped: it ends in exec or `exit`.
    checked(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Makes `target` a copy of `fd` that stays open over exec.
pub fn place(fd: RawFd, target: RawFd) -> Outcome<()> {
    // SAFETY: as for `close_range`: nobody's owner is behind `target` in this process.
    checked(unsafe { libc::syscall(libc::SYS_dup3, fd, target, 0) }).map(drop)
}

/// `SIG_DFL` or `SIG_IGN` for a signal.
fn dispose(signal: i32, disposition: usize) -> Outcome<()> {
    let action = [disposition as u64, 0, 0, 0];
    // SAFETY: `action` has the size of the kernel's struct sigaction on 64-bit Linux, and neither
    // disposition runs code of ours.
    checked(unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            action.as_ptr(),
            std::ptr::null::<u64>(),
            8,
        )
    })
    .map(drop)
}

/// Ignores what a terminal sends to its foreground group.
pub fn ignore_terminal_signals() -> Outcome<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP] {
        dispose(signal, libc::SIG_IGN)?;
    }
    Ok(())
}

/// Every signal to its default and none blocked: what the host ignored must not reach a tool.
pub fn reset_signals() -> Outcome<()> {
    for signal in 1..=64 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            dispose(signal, libc::SIG_DFL)?;
        }
    }
    let none = 0_u64;
    // SAFETY: reads eight bytes of `none`.
    checked(unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null::<u64>(),
            8,
        )
    })
    .map(drop)
}

/// A cgroup namespace rooted where this process now is.
pub fn unshare_cgroup() -> Outcome<()> {
    // SAFETY: changes this process's view of cgroups, no memory.
    checked(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWCGROUP) }).map(drop)
}

/// A session keyring of its own, so that the host's is out of reach. Kernels without keyrings pass.
pub fn new_session_keyring() -> Outcome<()> {
    const JOIN_SESSION_KEYRING: c_long = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory is touched.
    let result = checked(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, 0) });
    match result {
        Err(Errno::NOSYS) => Ok(()),
        other => other.map(drop),
    }
}

/// Sets attributes (`MOUNT_ATTR_*`) on the mount `fd`, and with `below` on all under it.
pub fn mount_attributes(fd: RawFd, set: u64, below: bool) -> Outcome<()> {
    // Private: what happens below must reach no mount of the host's, whatever the original shares.
    let attributes: [u64; 4] = [set, 0, libc::MS_PRIVATE, 0];
    let flags = libc::AT_EMPTY_PATH | if below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the array has the layout and size of struct mount_attr (VER0, 32 bytes).
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            c"".as_ptr(),
            flags,
            attributes.as_ptr(),
            32_usize,
        )
    })
    .map(drop)
}

/// Empties the bounding set.
pub fn drop_bounding_set() -> Outcome<()> {
    for capability in 0..64 {
        // SAFETY: prctl with integers only.
        let result =
            unsafe { libc::syscall(libc::SYS_prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match checked(result) {
            Ok(_) => {}
            // Past the kernel's last capability.
            Err(Errno::INVAL) if capability > 0 => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// All of `prctl` that takes integers.
pub fn control(option: i32, value: u64) -> Outcome<()> {
    // SAFETY: every option that `stages` passes takes integers, not addresses.
    checked(unsafe { libc::syscall(libc::SYS_prctl, option, value, 0, 0, 0) }).map(drop)
}

/// The kernel's Landlock ABI, 0 where there is none.
pub fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with a null attribute and this flag the kernel only answers its version.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u64>(),
            0,
            VERSION,
        )
    };
    u32::try_from(result).unwrap_or(0)
}

/// A ruleset that handles `attributes` (fs, net, scope), the words that the ABI knows.
pub fn landlock_ruleset(attributes: &[u64]) -> Outcome<RawFd> {
    // SAFETY: the slice is the attribute struct, all 64-bit words, and its length is passed.
    let fd = checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            attributes.as_ptr(),
            size_of_val(attributes),
            0,
        )
    })?;
    Ok(fd as RawFd)
}

#[repr(C, packed)]
struct PathBeneath {
    access: u64,
    parent: i32,
}

/// Allows `access` beneath the folder or file `parent`.
pub fn landlock_rule(ruleset: RawFd, parent: RawFd, access: u64) -> Outcome<()> {
    const PATH_BENEATH: u32 = 1;
    let rule = PathBeneath { access, parent };
    // SAFETY: `rule` has the layout of struct landlock_path_beneath_attr, which is packed.
    checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset,
            PATH_BENEATH,
            &raw const rule,
            0,
        )
    })
    .map(drop)
}

/// Puts this process and its children under `ruleset`.
pub fn landlock_restrict(ruleset: RawFd) -> Outcome<()> {
    // SAFETY: takes a descriptor and flags.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) }).map(drop)
}

#[repr(C)]
struct Program {
    len: u16,
    filter: *const u64,
}

/// Loads a seccomp filter. The kernel checks the program.
pub fn load_filter(bpf: &[u64]) -> Outcome<()> {
    if bpf.is_empty() || bpf.len() > BPF_MAX {
        return Err(Errno::INVAL);
    }
    const SET_MODE_FILTER: u32 = 1;
    let program = Program {
        len: bpf.len() as u16,
        filter: bpf.as_ptr(),
    };
    // SAFETY: struct sock_fprog: a count and that many 8-byte instructions, alive over the call.
    checked(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) })
        .map(drop)
}

/// Resource limit of this process.
pub fn resource_limit(resource: u32, soft: u64, hard: u64) -> Outcome<()> {
    let pair = [soft, hard];
    // SAFETY: struct rlimit64 is two 64-bit words; a null old value is allowed.
    checked(unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            resource,
            pair.as_ptr(),
            std::ptr::null::<u64>(),
        )
    })
    .map(drop)
}

/// Becomes the program `fd` with the page's arguments and environment. Returns only an error.
pub fn execute(fd: RawFd, page: &Page) -> Errno {
    let mut argv = [std::ptr::null::<c_char>(); ARGV_MAX + 1];
    let mut env = [std::ptr::null::<c_char>(); ENV_MAX + 1];
    let (args, envs) = (page.args as usize, page.envs as usize);
    let filled = page
        .argv
        .get(..args)
        .is_some_and(|from| point(page, from, &mut argv))
        && page
            .env
            .get(..envs)
            .is_some_and(|from| point(page, from, &mut env));
    if !filled {
        return Errno::INVAL;
    }
    // SAFETY: both arrays end in a null (they are one longer than the longest list) and each
    // entry is a terminated string inside `page`, which lives until the program replaces us.
    let result = unsafe {
        libc::syscall(
            libc::SYS_execveat,
            fd,
            c"".as_ptr(),
            argv.as_ptr(),
            env.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    checked(result).err().unwrap_or(Errno::INVAL)
}

fn point(page: &Page, from: &[Text], to: &mut [*const c_char]) -> bool {
    for (text, slot) in from.iter().zip(to) {
        match page.str(*text).map(CStr::as_ptr) {
            Some(pointer) => *slot = pointer,
            None => return false,
        }
    }
    true
}

/// What a reaped child leaves.
#[derive(Clone, Copy, Default)]
pub struct Reaped {
    /// Its pid.
    pub pid: i32,
    /// Its wait status.
    pub status: i32,
    /// Its and its reaped children's user time.
    pub user_us: u64,
    /// The same in the kernel.
    pub system_us: u64,
}

/// Waits for a child (`pid` -1: any). Blocks until it is dead.
pub fn reap(pid: i32) -> Outcome<Reaped> {
    let mut status = 0_i32;
    // SAFETY: a zeroed rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both addresses are of live locals of the right types.
    let found = checked(unsafe {
        libc::syscall(
            libc::SYS_wait4,
            pid,
            &raw mut status,
            libc::__WALL,
            &raw mut usage,
        )
    })?;
    let micros = |time: libc::timeval| (time.tv_sec as u64) * 1_000_000 + time.tv_usec as u64;
    Ok(Reaped {
        pid: found as i32,
        status,
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
    })
}

/// Ends this process at once, without running anything of the launcher's.
pub fn exit(code: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(code) }
}
