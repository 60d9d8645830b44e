//! The enforcement receipt: what the kernel says of a cell, and whether that is what was planned.
//!
//! Read by the launcher from outside the cell, while the tool's process waits at its last step.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use serde::Serialize;

use crate::cgroup::ReadBack;
use crate::planned::{CONTROLS, Page, StepKind, control};

const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "uts", "ipc", "net", "cgroup"];

/// The sets of `/proc/PID/status`.
#[derive(Default, Serialize)]
pub struct Capabilities {
    inheritable: u64,
    permitted: u64,
    effective: u64,
    bounding: u64,
    ambient: u64,
}

/// What Landlock was told.
#[derive(Default, Serialize)]
pub struct Landlock {
    abi: u32,
    rules: u32,
}

/// One line of `/proc/PID/mountinfo`.
#[derive(Serialize)]
pub struct MountLine {
    at: String,
    r#type: String,
    options: String,
}

/// See PLAN.md.
#[derive(Default, Serialize)]
pub struct Receipt {
    namespaces: BTreeMap<&'static str, u64>,
    seccomp_mode: u64,
    seccomp_filters: u64,
    no_new_privs: u64,
    capabilities: Capabilities,
    uid: u64,
    gid: u64,
    groups: Vec<u64>,
    landlock: Landlock,
    cgroup: ReadBack,
    mounts: Vec<MountLine>,
    weakened: Vec<&'static str>,
}

/// Inode of each namespace of a process.
pub fn namespaces(pid: &str) -> io::Result<BTreeMap<&'static str, u64>> {
    let mut found = BTreeMap::new();
    for name in NAMESPACES {
        let link = fs::read_link(format!("/proc/{pid}/ns/{name}"))?;
        let link = link.to_string_lossy();
        let inode = link
            .split(['[', ']'])
            .nth(1)
            .and_then(|text| text.parse().ok());
        found.insert(
            name,
            inode.ok_or_else(|| io::Error::other(format!("namespace {link}")))?,
        );
    }
    Ok(found)
}

impl Receipt {
    /// Asks the kernel about the process `pid`.
    pub fn read(pid: i32, page: &Page, cgroup: ReadBack) -> io::Result<Self> {
        let status = whole(&format!("/proc/{pid}/status"))?;
        let field = |name: &str| -> &str {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.strip_prefix(':'))
                .unwrap_or("")
                .trim()
        };
        let number = |name: &str| -> io::Result<u64> {
            let first = field(name).split_whitespace().next().unwrap_or("");
            first
                .parse()
                .map_err(|_| io::Error::other(format!("/proc/PID/status has no {name}")))
        };
        let set = |name: &str| {
            u64::from_str_radix(field(name), 16)
                .map_err(|_| io::Error::other(format!("/proc/PID/status has no {name}")))
        };
        let applied = page.enforces(const { control("landlock") });
        Ok(Self {
            namespaces: namespaces(&pid.to_string())?,
            seccomp_mode: number("Seccomp")?,
            seccomp_filters: number("Seccomp_filters").unwrap_or(0),
            no_new_privs: number("NoNewPrivs")?,
            capabilities: Capabilities {
                inheritable: set("CapInh")?,
                permitted: set("CapPrm")?,
                effective: set("CapEff")?,
                bounding: set("CapBnd")?,
                ambient: set("CapAmb")?,
            },
            uid: number("Uid")?,
            gid: number("Gid")?,
            groups: field("Groups")
                .split_whitespace()
                .flat_map(str::parse)
                .collect(),
            landlock: Landlock {
                abi: if applied { page.landlock_abi } else { 0 },
                rules: if applied { page.rules } else { 0 },
            },
            cgroup,
            mounts: mounts(pid)?,
            weakened: CONTROLS
                .iter()
                .filter(|(_, bit)| !page.enforces(*bit))
                .map(|(name, _)| *name)
                .collect(),
        })
    }

    /// What is less than the plan demands, the first such thing.
    pub fn shortfall(
        &self,
        page: &Page,
        own: &BTreeMap<&'static str, u64>,
        id: u64,
    ) -> Option<String> {
        let on = |name| page.enforces(control(name));
        for (name, inode) in &self.namespaces {
            if on(name) && own.get(name) == Some(inode) {
                return Some(format!("the {name} namespace is the host's"));
            }
        }
        let held = &self.capabilities;
        let sets = held.inheritable | held.permitted | held.effective | held.ambient;
        let closed = self.mounts.iter().all(|mount| {
            let mut options = mount.options.split(',');
            options.any(|option| option == "ro") || is_scratch(page, mount)
        });
        let checks = [
            (
                !on("seccomp") || self.seccomp_mode == 2,
                "seccomp is not in filter mode",
            ),
            (
                !on("no_new_privs") || self.no_new_privs == 1,
                "no_new_privs is not set",
            ),
            (!on("capabilities") || sets == 0, "a capability is left"),
            (
                !on("bounding") || held.bounding == 0,
                "the bounding set is not empty",
            ),
            (
                self.uid == id && self.gid == id,
                "the uid is not the cell's",
            ),
            (self.groups.is_empty(), "a supplementary group is left"),
            (
                !on("pivot") || !on("read_only") || closed,
                "a mount that is not scratch is writable",
            ),
            (
                self.cgroup.members >= 2,
                "the processes are not in the cgroup",
            ),
        ];
        checks
            .into_iter()
            .find(|(good, _)| !good)
            .map(|(_, what)| what.to_owned())
    }
}

/// A file of /proc, in as few reads as it takes: it has no size, and each read makes it anew.
fn whole(path: &str) -> io::Result<String> {
    let mut bytes = vec![0; 16_384];
    let file = fs::File::open(path)?;
    let mut filled = 0;
    loop {
        let space = bytes.get_mut(filled..).unwrap_or_default();
        match rustix::io::read(&file, space)? {
            0 => break,
            count => filled += count,
        }
        if filled == bytes.len() {
            bytes.resize(filled * 2, 0);
        }
    }
    bytes.truncate(filled);
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Whether the plan asked for this one to be writable.
fn is_scratch(page: &Page, mount: &MountLine) -> bool {
    let steps = page.step.get(..page.steps as usize).unwrap_or_default();
    mount.r#type == "tmpfs"
        && steps.iter().any(|step| {
            let at = page.str(step.at).map(std::ffi::CStr::to_bytes);
            step.kind == StepKind::Tmpfs as u32 && at == Some(mount.at.as_bytes())
        })
}

fn mounts(pid: i32) -> io::Result<Vec<MountLine>> {
    let text = whole(&format!("/proc/{pid}/mountinfo"))?;
    let mut lines = Vec::new();
    for line in text.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let fields: Vec<&str> = left.split(' ').collect();
        if let (Some(at), Some(options)) = (fields.get(4), fields.get(5)) {
            lines.push(MountLine {
                at: (*at).to_owned(),
                r#type: right.split(' ').next().unwrap_or("").to_owned(),
                options: (*options).to_owned(),
            });
        }
    }
    Ok(lines)
}
