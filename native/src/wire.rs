//! The messages between lane and launcher: their fields, as PLAN.md fixes them.
//!
//! Parsing checks shape only (types, unknown fields); `plan` checks values. Called by `launcher`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Largest packet, each way.
pub const PACKET_MAX: usize = 262_144;
/// The protocol's version.
pub const PROTOCOL: u32 = 1;

/// What every request has. Read first, so that a bad one can be refused by its id.
#[derive(Deserialize)]
pub struct Head {
    /// Which request.
    pub op: String,
    /// Which cell.
    #[serde(default)]
    pub id: u64,
}

/// Bytes that may come as msgpack `str` or `bin`.
#[derive(Default)]
pub struct Bytes(pub Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Bytes;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("str or bin")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                Ok(Bytes(text.as_bytes().to_vec()))
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Bytes, A::Error> {
                Err(de::Error::custom("a list where str or bin is due"))
            }
        }
        from.deserialize_any(Either)
    }
}

/// First request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    /// See [`PROTOCOL`].
    pub protocol: u32,
    /// Cgroup under which slots are made.
    #[serde(default = "default_parent")]
    pub cgroup_parent: String,
    /// Cells to keep parked.
    #[serde(default = "default_pool")]
    pub pool: usize,
    /// First host uid for cells.
    #[serde(default = "default_uid_base")]
    pub uid_base: u32,
}

fn default_parent() -> String {
    "toolcell".into()
}
fn default_pool() -> usize {
    2
}
fn default_uid_base() -> u32 {
    1_879_048_192
}
fn default_cwd() -> Bytes {
    Bytes(b"/".to_vec())
}
fn default_hostname() -> Bytes {
    Bytes(b"cell".to_vec())
}
fn yes() -> bool {
    true
}
fn default_percent() -> u64 {
    100
}

/// One entry of `mounts`.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Mount {
    /// A host tree, read-only.
    Bind {
        /// Where in the cell.
        at: String,
        /// Where on the host.
        source: String,
        /// Whether files of it may be run.
        #[serde(default = "yes")]
        exec: bool,
    },
    /// Scratch.
    Tmpfs {
        /// Where in the cell.
        at: String,
        /// Its size.
        size_bytes: u64,
        /// Its files.
        inodes: u64,
    },
    /// A link in the root.
    Symlink {
        /// Where in the cell.
        at: String,
        /// What it says.
        to: String,
    },
    /// An empty folder.
    Dir {
        /// Where in the cell.
        at: String,
    },
}

/// One Landlock rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Beneath what.
    pub at: String,
    /// `read`, `execute`, `write`.
    pub access: Vec<String>,
}

/// Hard limits of a run.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Wall time from the start of the program.
    pub wall_ms: u64,
    /// CPU time of the tree.
    pub cpu_ms: u64,
    /// Memory of the tree.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Bandwidth.
    #[serde(default = "default_percent")]
    pub cpu_percent: u64,
}

/// A plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spawn {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    /// The cell's name from here on.
    pub id: u64,
    /// Path in the cell.
    pub program: String,
    /// Arguments.
    pub argv: Vec<Bytes>,
    /// Environment.
    pub env: Vec<Bytes>,
    /// Working folder.
    #[serde(default = "default_cwd")]
    pub cwd: Bytes,
    /// Host name.
    #[serde(default = "default_hostname")]
    pub hostname: Bytes,
    /// Number of each passed descriptor.
    pub fds: Vec<i32>,
    /// The root.
    pub mounts: Vec<Mount>,
    /// Landlock rules.
    pub landlock: Vec<Rule>,
    /// Finished BPF.
    #[serde(with = "serde_bytes")]
    pub seccomp: Vec<u8>,
    /// Resource limits.
    #[serde(default)]
    pub rlimits: BTreeMap<String, (u64, u64)>,
    /// Hard limits.
    pub limits: Limits,
    /// Controls to leave out.
    #[serde(default)]
    pub without: Vec<String>,
}

/// `kill`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    /// Which cell.
    pub id: u64,
    /// Why.
    pub reason: String,
}

/// `signal`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalOp {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    /// Which cell.
    pub id: u64,
    /// Which signal.
    pub signal: i32,
}

/// What a run used.
#[derive(Clone, Default, Serialize)]
pub struct Usage {
    /// CPU time of the tree.
    pub cpu_us: u64,
    /// User part, of processes that were reaped.
    pub user_us: u64,
    /// Kernel part, of the same.
    pub system_us: u64,
    /// Most memory.
    pub memory_peak_bytes: u64,
    /// Most processes and threads, without the launcher's init.
    pub pids_peak: u64,
    /// Processes that the kernel killed for memory.
    pub oom_kills: u64,
    /// Time that the tree waited for its bandwidth.
    pub throttled_us: u64,
    /// From the start of the program.
    pub wall_us: u64,
}

/// A limit that ended a run.
#[derive(Clone, Serialize)]
pub struct Breach {
    /// `wall`, `cpu`, `memory`, `pids`.
    pub name: &'static str,
    /// What was allowed.
    pub limit: u64,
    /// What was used.
    pub used: u64,
}

/// Every answer.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Answer {
    /// To `hello`.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The program's version.
        version: &'static str,
        /// The launcher.
        pid: u32,
        /// 0 where there is none.
        landlock_abi: u32,
        /// Controller to version.
        cgroup: BTreeMap<&'static str, &'static str>,
        /// Feature to reason.
        missing: BTreeMap<&'static str, String>,
    },
    /// A wrong request; nothing ran.
    Refused {
        /// Which cell.
        id: u64,
        /// What is wrong.
        reason: String,
    },
    /// The machine would not; nothing ran.
    Failed {
        /// Which cell.
        id: u64,
        /// Where.
        stage: String,
        /// Why.
        errno: i32,
        /// In words.
        detail: String,
    },
    /// The program runs.
    Spawned {
        /// Which cell.
        id: u64,
        /// The tool.
        pid: i32,
        /// Whether the cell came from the pool.
        warm: bool,
        /// Time of each stage.
        stages_us: BTreeMap<&'static str, f64>,
        /// What the kernel says.
        receipt: Box<crate::receipt::Receipt>,
    },
    /// The tree is dead.
    Exit {
        /// Which cell.
        id: u64,
        /// Exit code.
        exit: Option<i32>,
        /// Signal that ended the tool.
        signal: Option<i32>,
        /// Limit that ended it.
        limit: Option<Breach>,
        /// The lane's reason, if it killed.
        killed: Option<String>,
        /// What was used.
        usage: Usage,
        /// What could not be removed.
        leaks: Vec<String>,
    },
    /// To `usage`.
    Usage {
        /// Which cell.
        id: u64,
        /// So far.
        usage: Usage,
    },
}

impl Answer {
    /// Its msgpack form.
    pub fn pack(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).unwrap_or_default()
    }
}

/// Reads a request, or says what is wrong with it.
pub fn read<'de, T: Deserialize<'de>>(packet: &'de [u8]) -> Result<T, String> {
    rmp_serde::from_slice(packet).map_err(|error| error.to_string())
}

#[cfg(test)]
impl Spawn {
    /// The least plan that is one.
    pub fn for_test(limits: Limits) -> Self {
        Self {
            _op: IgnoredAny,
            id: 1,
            program: "/tool/run".into(),
            argv: vec![Bytes(b"run".to_vec())],
            env: Vec::new(),
            cwd: default_cwd(),
            hostname: default_hostname(),
            fds: vec![0, 1, 2],
            mounts: Vec::new(),
            landlock: Vec::new(),
            seccomp: vec![0; 8],
            rlimits: BTreeMap::new(),
            limits,
            without: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct KillLike<'a> {
        op: &'a str,
        id: i64,
        reason: &'a str,
    }

    fn packed(id: i64) -> Vec<u8> {
        let message = KillLike {
            op: "kill",
            id,
            reason: "why",
        };
        rmp_serde::to_vec_named(&message).expect("packs")
    }

    #[test]
    fn a_request_is_read_by_name() {
        let kill: Kill = read(&packed(7)).expect("reads");
        assert_eq!((kill.id, kill.reason.as_str()), (7, "why"));
    }

    #[test]
    fn an_unknown_field_and_a_wrong_type_are_refused() {
        assert!(read::<Hello>(&packed(7)).is_err());
        assert!(read::<Kill>(&packed(-1)).is_err());
        assert!(read::<Head>(b"\xff").is_err());
        assert!(read::<Head>(&[]).is_err());
    }

    #[test]
    fn bytes_come_as_text_or_binary_and_as_nothing_else() {
        let text = rmp_serde::to_vec("a").expect("packs");
        let binary = rmp_serde::to_vec(serde_bytes::Bytes::new(b"a")).expect("packs");
        let list = rmp_serde::to_vec(&[1, 2]).expect("packs");
        assert_eq!(read::<Bytes>(&text).map(|bytes| bytes.0), Ok(b"a".to_vec()));
        assert_eq!(
            read::<Bytes>(&binary).map(|bytes| bytes.0),
            Ok(b"a".to_vec())
        );
        assert!(read::<Bytes>(&list).is_err());
    }

    #[test]
    fn an_answer_names_its_event() {
        let answer = Answer::Refused {
            id: 3,
            reason: "why".into(),
        };
        let packet = answer.pack();
        assert!(packet.windows(7).any(|part| part == b"refused"));
    }
}
