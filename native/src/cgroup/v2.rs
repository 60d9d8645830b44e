//! Version 2: one tree. `cgroup.kill` is never used: on many kernels every later process that is
//! cloned into the same cgroup dies at birth.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::{
    Alarm, CPU_PERIOD_US, Hierarchy, NEEDED, ReadBack, Slot, check_memory, keyed, number, open,
    read, set, weaker,
};
use crate::wire::{Limits, Usage};

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// The tree, where it has every needed controller.
pub struct Tree {
    parent: PathBuf,
    relative: String,
}

impl Tree {
    /// Looks for it in a mount table; `None` where its controllers are bound to version 1 or
    /// can't be used.
    pub fn find(mounts: &str, parent: &str) -> Option<Self> {
        let root = mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            (fields.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(fields[1]))
        });
        let root = root?;
        let has = |folder: &Path, file: &str| {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            CONTROLLERS
                .iter()
                .all(|name| text.split_whitespace().any(|word| word == *name))
        };
        if !has(&root, "cgroup.controllers") {
            return None;
        }
        let folder = root.join(parent);
        let there = fs::create_dir(&folder).is_ok() || folder.is_dir();
        if !there || access(&folder, Access::WRITE_OK).is_err() {
            return None;
        }
        for level in [&root, &folder] {
            if !has(level, "cgroup.subtree_control") {
                fs::write(level.join("cgroup.subtree_control"), "+memory +pids +cpu").ok()?;
            }
        }
        let relative = format!("/{parent}");
        Some(Self {
            parent: folder,
            relative,
        })
    }
}

impl Hierarchy for Tree {
    fn controllers(&self) -> BTreeMap<&'static str, &'static str> {
        NEEDED.into_iter().map(|name| (name, "v2")).collect()
    }

    fn slot(&self, name: &str) -> io::Result<Box<dyn Slot>> {
        let folder = self.parent.join(name);
        fs::create_dir(&folder)?;
        let path = format!("{}/{name}", self.relative);
        match V2Slot::open(folder.clone(), path) {
            Ok(slot) => Ok(Box::new(slot)),
            Err(error) => {
                let _ = fs::remove_dir(&folder);
                Err(error)
            }
        }
    }

    fn parents(&self) -> Vec<PathBuf> {
        vec![self.parent.clone()]
    }
}

struct V2Slot {
    folder: PathBuf,
    path: String,
    entries: Vec<OwnedFd>,
    memory: File,
    swap: Option<File>,
    memory_peak: Option<File>,
    memory_events: OwnedFd,
    members: File,
    pids: File,
    pids_peak: Option<File>,
    pids_events: OwnedFd,
    quota: File,
    cpu_stat: File,
}

impl V2Slot {
    fn open(folder: PathBuf, path: String) -> io::Result<Self> {
        let at = |file: &str| folder.join(file);
        let watched = |file: &str| {
            let file = File::open(at(file))?;
            // A file that was never read counts as changed.
            read(&file)?;
            Ok::<_, io::Error>(OwnedFd::from(file))
        };
        // One process that goes over takes the tree with it: half a tree is no tool.
        fs::write(at("memory.oom.group"), "1")?;
        Ok(Self {
            entries: vec![File::options().write(true).open(at("cgroup.procs"))?.into()],
            memory: open(&at("memory.max"))?,
            swap: open(&at("memory.swap.max")).ok(),
            memory_peak: File::open(at("memory.peak")).ok(),
            memory_events: watched("memory.events")?,
            members: File::open(at("cgroup.procs"))?,
            pids: open(&at("pids.max"))?,
            pids_peak: File::open(at("pids.peak")).ok(),
            pids_events: watched("pids.events")?,
            quota: open(&at("cpu.max"))?,
            cpu_stat: File::open(at("cpu.stat"))?,
            folder,
            path,
        })
    }

    fn event(file: &OwnedFd, key: &str) -> u64 {
        let mut buffer = [0_u8; 512];
        let count = rustix::io::pread(file, &mut buffer, 0).unwrap_or(0);
        keyed(&String::from_utf8_lossy(&buffer[..count]), key).unwrap_or(0)
    }
}

impl Slot for V2Slot {
    fn entries(&self) -> &[OwnedFd] {
        &self.entries
    }

    fn limit(&mut self, limits: &Limits) -> io::Result<ReadBack> {
        set(&self.memory, &limits.memory_bytes.to_string())?;
        let memory_bytes = number(&self.memory)?;
        check_memory(limits.memory_bytes, memory_bytes)?;
        if let Some(swap) = &self.swap {
            set(swap, "0")?;
            if number(swap)? != 0 {
                return Err(weaker("swap", 0, number(swap)?));
            }
        }
        set(&self.pids, &(limits.pids + 1).to_string())?;
        let pids = number(&self.pids)?;
        if pids != limits.pids + 1 {
            return Err(weaker("pids", limits.pids + 1, pids));
        }
        let quota = limits.cpu_percent * CPU_PERIOD_US / 100;
        set(&self.quota, &format!("{quota} {CPU_PERIOD_US}"))?;
        let text = read(&self.quota)?;
        let mut words = text
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0));
        let (cpu_quota_us, cpu_period_us) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        if cpu_quota_us != quota || cpu_period_us != CPU_PERIOD_US {
            return Err(weaker("cpu quota", quota, cpu_quota_us));
        }
        Ok(ReadBack {
            version: 2,
            path: self.path.clone(),
            memory_bytes,
            pids,
            cpu_quota_us,
            cpu_period_us,
            members: 0,
        })
    }

    fn alarms(&self) -> Vec<(Alarm, &OwnedFd)> {
        vec![
            (Alarm::Memory, &self.memory_events),
            (Alarm::Pids, &self.pids_events),
        ]
    }

    fn memory_alarm_is_eventfd(&self) -> bool {
        false
    }

    fn raised(&self, alarm: Alarm) -> u64 {
        match alarm {
            Alarm::Memory => Self::event(&self.memory_events, "oom_kill"),
            Alarm::Pids => Self::event(&self.pids_events, "max"),
        }
    }

    fn cpu_us(&self) -> u64 {
        read(&self.cpu_stat)
            .ok()
            .and_then(|text| keyed(&text, "usage_usec"))
            .unwrap_or(0)
    }

    fn usage(&self) -> Usage {
        let stat = read(&self.cpu_stat).unwrap_or_default();
        let peak = |file: &Option<File>| file.as_ref().and_then(|file| number(file).ok());
        Usage {
            cpu_us: keyed(&stat, "usage_usec").unwrap_or(0),
            memory_peak_bytes: peak(&self.memory_peak).unwrap_or(0),
            pids_peak: peak(&self.pids_peak).unwrap_or(0),
            oom_kills: Self::event(&self.memory_events, "oom_kill"),
            throttled_us: keyed(&stat, "throttled_usec").unwrap_or(0),
            ..Usage::default()
        }
    }

    fn members(&self) -> u64 {
        read(&self.members).map_or(0, |text| text.lines().count() as u64)
    }

    fn remove(&mut self) -> io::Result<()> {
        match fs::remove_dir(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
