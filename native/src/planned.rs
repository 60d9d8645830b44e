//! What a cell's process reads and writes between clone and exec: plain data at fixed places.
//!
//! The launcher fills a [`Page`] in memory that it shares with the one cell (`sys::SharedPage`);
//! the cell's process only reads the plan and only writes `report`. Everything here is valid when
//! zeroed, so that fresh memory is an empty plan. Nothing here allocates or calls the kernel.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Bytes of text (argv, env, paths) that a plan may hold, terminators included.
pub const TEXT_MAX: usize = 196_608;
/// Most arguments.
pub const ARGV_MAX: usize = 1024;
/// Most environment entries.
pub const ENV_MAX: usize = 256;
/// Most entries of `mounts`.
pub const MOUNTS_MAX: usize = 64;
/// Most Landlock rules.
pub const RULES_MAX: usize = 64;
/// Most descriptors handed to a cell, and one more than the highest number that one may get.
pub const FDS_MAX: usize = 64;
/// Most instructions of a seccomp program (`BPF_MAXINSNS`).
pub const BPF_MAX: usize = 4096;
/// Kinds of resource limit.
pub const RLIMITS_MAX: usize = 16;

/// A control that a test can leave out, as a bit of [`Page::without`]. The names are the protocol's.
pub const CONTROLS: [(&str, u32); 14] = [
    ("seccomp", 1 << 0),
    ("landlock", 1 << 1),
    ("no_new_privs", 1 << 2),
    ("capabilities", 1 << 3),
    ("bounding", 1 << 4),
    ("net", 1 << 5),
    ("pid", 1 << 6),
    ("ipc", 1 << 7),
    ("uts", 1 << 8),
    ("userns_limit", 1 << 9),
    ("read_only", 1 << 10),
    ("close_fds", 1 << 11),
    ("session", 1 << 12),
    ("pivot", 1 << 13),
];

/// The bit of a control; 0 for a name that is none, which leaves nothing out.
pub const fn control(name: &str) -> u32 {
    let mut index = 0;
    while index < CONTROLS.len() {
        if same(CONTROLS[index].0.as_bytes(), name.as_bytes()) {
            return CONTROLS[index].1;
        }
        index += 1;
    }
    0
}

const fn same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// Steps of a start in the order in which they are taken. See PLAN.md for who takes which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Stage {
    /// Process and namespaces.
    Clone = 1,
    /// Signals to their defaults, a session of its own, every descriptor closed but its own.
    Close,
    /// Into the cgroup slot.
    Cgroup,
    /// Waiting for the id maps.
    Maps,
    /// The one uid and gid of the user namespace; die with the launcher.
    Ids,
    /// Host and domain name.
    Hostname,
    /// No user namespace below this one.
    Userns,
    /// The empty root.
    Root,
    /// `/proc` of the cell's own pid namespace.
    Proc,
    /// The minimal `/dev`.
    Dev,
    /// The host's tree is gone.
    Pivot,
    /// The bounding set is emptied.
    Bounding,
    /// No way for uid 0 to regain capabilities.
    Securebits,
    /// `no_new_privs`.
    NoNewPrivs,
    /// Launcher: cgroup limits written and read back.
    Limits,
    /// Launcher: a detached read-only mount for each bind.
    Trees,
    /// Plan and descriptors received.
    HandOver,
    /// The plan's mounts.
    Mounts,
    /// The root turns read-only.
    SealRoot,
    /// Descriptors at their numbers, the program opened, all others closed.
    Fds,
    /// Landlock.
    Landlock,
    /// Capabilities dropped.
    Capabilities,
    /// The tool's process, beside the init that stays behind.
    Init,
    /// Resource limits.
    Rlimits,
    /// The system-call filter.
    Seccomp,
    /// Launcher: what the kernel says, compared with the plan.
    Receipt,
    /// The program itself.
    Exec,
}

/// Name of each stage in the protocol; the index is the stage's number less one.
pub const STAGE_NAMES: [&str; 27] = [
    "clone",
    "close",
    "cgroup",
    "maps",
    "ids",
    "hostname",
    "userns",
    "root",
    "proc",
    "dev",
    "pivot",
    "bounding",
    "securebits",
    "no_new_privs",
    "limits",
    "trees",
    "hand_over",
    "mounts",
    "seal_root",
    "fds",
    "landlock",
    "capabilities",
    "init",
    "rlimits",
    "seccomp",
    "receipt",
    "exec",
];

/// A terminated string in [`Page::text`].
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Text {
    /// Where it starts.
    pub offset: u32,
    /// Bytes, terminator included; 0 for a text that was never set.
    pub len: u32,
}

/// How a [`Step`] makes its place.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum StepKind {
    /// A folder, if it is not there yet.
    Dir = 0,
    /// A file to mount on.
    File,
    /// The next received tree, attached at `at`.
    Attach,
    /// A fresh tmpfs at `at`.
    Tmpfs,
    /// A link at `at` to `to`.
    Symlink,
}

/// One step of building the root.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Step {
    /// What to make.
    pub kind: u32,
    /// Where.
    pub at: Text,
    /// Target of a link; size option of a tmpfs.
    pub to: Text,
    /// Inode option of a tmpfs.
    pub more: Text,
}

/// One Landlock rule: access bits beneath a path.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Rule {
    /// The path inside the cell.
    pub at: Text,
    /// `LANDLOCK_ACCESS_FS_*`.
    pub access: u64,
}

/// One resource limit.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Limit {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// Soft and hard value.
    pub soft: u64,
    /// Hard value.
    pub hard: u64,
}

/// What the cell's process says back. Written by it alone, read by the launcher.
#[repr(C)]
pub struct Report {
    /// The stage that failed, 0 for none.
    pub failed_stage: AtomicI32,
    /// Its errno.
    pub errno: AtomicI32,
    /// Wait status of the tool as its init saw it, plus 1; 0 while it runs.
    pub status: AtomicI32,
    /// Nanoseconds that each stage took.
    pub stage_ns: [AtomicU64; STAGE_NAMES.len()],
}

/// Steps of building the root: each mount may need its parents.
pub const STEPS_MAX: usize = MOUNTS_MAX * 8;

/// A whole plan, and the report on it.
#[repr(C)]
pub struct Page {
    /// Controls that are left out, a sum of bits of [`CONTROLS`]. 0 outside tests.
    pub without: u32,
    /// The kernel's Landlock ABI.
    pub landlock_abi: u32,
    /// When the plan was sent, on the monotonic clock: a parked cell's wait is no stage.
    pub handed_ns: u64,
    /// Entries used of each list below.
    pub steps: u32,
    /// Of `rule`.
    pub rules: u32,
    /// Of `argv`.
    pub args: u32,
    /// Of `env`.
    pub envs: u32,
    /// Of `fd`: the descriptors that are the plan's; trees come after them on the same message.
    pub fds: u32,
    /// Trees that come.
    pub trees: u32,
    /// Of `limit`.
    pub limits: u32,
    /// Of `bpf`.
    pub bpf_len: u32,
    /// Bytes used of `text`.
    pub text_len: u32,
    /// Path of the program.
    pub program: Text,
    /// Working folder.
    pub cwd: Text,
    /// Host name.
    pub hostname: Text,
    /// The lists.
    pub step: [Step; STEPS_MAX],
    /// Landlock rules.
    pub rule: [Rule; RULES_MAX],
    /// Arguments.
    pub argv: [Text; ARGV_MAX],
    /// Environment.
    pub env: [Text; ENV_MAX],
    /// Number in the cell of each descriptor.
    pub fd: [i32; FDS_MAX],
    /// Resource limits.
    pub limit: [Limit; RLIMITS_MAX],
    /// The seccomp program, one `sock_filter` each.
    pub bpf: [u64; BPF_MAX],
    /// Every string.
    pub text: [u8; TEXT_MAX],
    /// The answer.
    pub report: Report,
}

impl Page {
    /// The string of `text`, or `None` where it is not one (a launcher's bug, not a plan's).
    pub fn str(&self, text: Text) -> Option<&CStr> {
        let start = text.offset as usize;
        let end = start.checked_add(text.len as usize)?;
        CStr::from_bytes_with_nul(self.text.get(start..end)?).ok()
    }

    /// Whether a control is in force.
    pub fn enforces(&self, bit: u32) -> bool {
        self.without & bit == 0
    }

    /// Adds a string; `None` where it does not fit or holds a NUL.
    pub fn add(&mut self, bytes: &[u8]) -> Option<Text> {
        let start = self.text_len as usize;
        let end = start.checked_add(bytes.len())?.checked_add(1)?;
        if bytes.contains(&0) || end > TEXT_MAX {
            return None;
        }
        self.text.get_mut(start..end - 1)?.copy_from_slice(bytes);
        self.text[end - 1] = 0;
        self.text_len = u32::try_from(end).ok()?;
        Some(Text {
            offset: u32::try_from(start).ok()?,
            len: u32::try_from(bytes.len() + 1).ok()?,
        })
    }
}

impl Report {
    /// Which stage failed and why, if one did.
    pub fn failure(&self) -> Option<(&'static str, i32)> {
        let stage = self.failed_stage.load(Ordering::Acquire);
        let index = usize::try_from(stage).ok()?.checked_sub(1)?;
        let name = STAGE_NAMES.get(index).copied()?;
        Some((name, self.errno.load(Ordering::Acquire)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::SharedPage;

    fn page() -> SharedPage {
        SharedPage::new().expect("memory")
    }

    #[test]
    fn text_comes_back_as_it_went_in() {
        let mut page = page();
        let text = page.get_mut().add(b"/tool").expect("room");
        let empty = page.get_mut().add(b"").expect("room");
        assert_eq!(page.get().str(text), Some(c"/tool"));
        assert_eq!(page.get().str(empty), Some(c""));
        assert_eq!(page.get().str(Text::default()), None);
    }

    #[test]
    fn text_with_a_nul_or_over_the_bound_is_refused_and_takes_no_room() {
        let mut page = page();
        assert!(page.get_mut().add(b"a\0b").is_none());
        assert!(page.get_mut().add(&vec![b'a'; TEXT_MAX]).is_none());
        assert_eq!(page.get().text_len, 0);
        assert!(page.get_mut().add(&vec![b'a'; TEXT_MAX - 1]).is_some());
        assert!(page.get_mut().add(b"").is_none());
    }

    #[test]
    fn every_stage_has_its_own_name() {
        assert_eq!(STAGE_NAMES[Stage::Clone as usize - 1], "clone");
        assert_eq!(STAGE_NAMES[Stage::HandOver as usize - 1], "hand_over");
        assert_eq!(STAGE_NAMES[Stage::Landlock as usize - 1], "landlock");
        assert_eq!(STAGE_NAMES[Stage::Init as usize - 1], "init");
        assert_eq!(STAGE_NAMES[Stage::Exec as usize - 1], "exec");
        assert_eq!(STAGE_NAMES.len(), Stage::Exec as usize);
    }

    #[test]
    fn a_control_is_one_bit_and_an_unknown_one_is_none() {
        let mut seen = 0;
        for (name, bit) in CONTROLS {
            assert_eq!((control(name), bit.count_ones(), seen & bit), (bit, 1, 0));
            seen |= bit;
        }
        assert_eq!(control("nonsense"), 0);
    }

    #[test]
    fn a_fresh_page_enforces_everything() {
        let page = page();
        assert!(CONTROLS.iter().all(|(_, bit)| page.get().enforces(*bit)));
        assert_eq!(page.get().report.failure(), None);
    }
}
