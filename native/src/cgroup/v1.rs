//! Version 1: a tree for each controller.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Access, access};

use super::{
    Alarm, CPU_PERIOD_US, Hierarchy, NEEDED, ReadBack, Slot, check_memory, keyed, number, open,
    read, set, weaker,
};
use crate::wire::{Limits, Usage};

/// The trees of the needed controllers; two controllers may share one.
pub struct Trees {
    parents: BTreeMap<&'static str, PathBuf>,
    relative: String,
}

impl Trees {
    /// Looks for them in a mount table and makes `parent` in each.
    pub fn find(mounts: &str, parent: &str) -> io::Result<Self> {
        let mut parents = BTreeMap::new();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let &[_, at, "cgroup", options, ..] = &fields[..] else {
                continue;
            };
            for needed in NEEDED {
                if options.split(',').any(|option| option == needed) {
                    let folder = Path::new(at).join(parent);
                    // Not being allowed to is found out here, and named by `hello`.
                    let there = fs::create_dir(&folder).is_ok() || folder.is_dir();
                    if there && access(&folder, Access::WRITE_OK).is_ok() {
                        parents.insert(needed, folder);
                    }
                }
            }
        }
        let relative = format!("/{parent}");
        Ok(Self { parents, relative })
    }
}

impl Hierarchy for Trees {
    fn controllers(&self) -> BTreeMap<&'static str, &'static str> {
        let version = |name| {
            if self.parents.contains_key(name) {
                "v1"
            } else {
                ""
            }
        };
        NEEDED
            .into_iter()
            .map(|name| (name, version(name)))
            .collect()
    }

    fn slot(&self, name: &str) -> io::Result<Box<dyn Slot>> {
        let mut folders = Vec::new();
        for parent in self.parents() {
            let folder = parent.join(name);
            if let Err(error) = fs::create_dir(&folder) {
                for made in &folders {
                    let _ = fs::remove_dir(made);
                }
                return Err(error);
            }
            folders.push(folder);
        }
        let path = format!("{}/{name}", self.relative);
        match V1Slot::open(&self.parents, name, folders.clone(), path) {
            Ok(slot) => Ok(Box::new(slot)),
            Err(error) => {
                for made in &folders {
                    let _ = fs::remove_dir(made);
                }
                Err(error)
            }
        }
    }

    fn parents(&self) -> Vec<PathBuf> {
        let mut parents: Vec<PathBuf> = self.parents.values().cloned().collect();
        parents.sort();
        parents.dedup();
        parents
    }
}

struct V1Slot {
    folders: Vec<PathBuf>,
    path: String,
    entries: Vec<OwnedFd>,
    memory: File,
    memory_swap: Option<File>,
    memory_peak: File,
    oom: File,
    oom_alarm: OwnedFd,
    members: File,
    pids: File,
    pids_peak: Option<File>,
    pids_events: OwnedFd,
    quota: File,
    period: File,
    cpu_stat: File,
    cpu_used: File,
}

impl V1Slot {
    fn open(
        parents: &BTreeMap<&'static str, PathBuf>,
        name: &str,
        folders: Vec<PathBuf>,
        path: String,
    ) -> io::Result<Self> {
        let at = |controller: &str, file: &str| {
            let missing = || io::Error::other(format!("controller {controller} is missing"));
            Ok::<_, io::Error>(
                parents
                    .get(controller)
                    .ok_or_else(missing)?
                    .join(name)
                    .join(file),
            )
        };
        let write_only = |path: &Path| File::options().write(true).open(path);
        let entries = folders
            .iter()
            .map(|folder| write_only(&folder.join("cgroup.procs")).map(OwnedFd::from))
            .collect::<io::Result<Vec<_>>>()?;
        let oom = File::open(at("memory", "memory.oom_control")?)?;
        let oom_alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let listener = write_only(&at("memory", "cgroup.event_control")?)?;
        let line = format!("{} {}", oom_alarm.as_raw_fd(), oom.as_raw_fd());
        set(&listener, &line)?;
        let swap = at("memory", "memory.memsw.limit_in_bytes")?;
        let pids_events = File::open(at("pids", "pids.events")?)?;
        // A file that was never read counts as changed.
        read(&pids_events)?;
        Ok(Self {
            entries,
            memory: open(&at("memory", "memory.limit_in_bytes")?)?,
            memory_swap: open(&swap).ok(),
            memory_peak: File::open(at("memory", "memory.max_usage_in_bytes")?)?,
            oom,
            oom_alarm,
            members: File::open(at("memory", "cgroup.procs")?)?,
            pids: open(&at("pids", "pids.max")?)?,
            pids_peak: File::open(at("pids", "pids.peak")?).ok(),
            pids_events: pids_events.into(),
            quota: open(&at("cpu", "cpu.cfs_quota_us")?)?,
            period: open(&at("cpu", "cpu.cfs_period_us")?)?,
            cpu_stat: File::open(at("cpu", "cpu.stat")?)?,
            cpu_used: File::open(at("cpuacct", "cpuacct.usage")?)?,
            folders,
            path,
        })
    }
}

impl Slot for V1Slot {
    fn entries(&self) -> &[OwnedFd] {
        &self.entries
    }

    fn limit(&mut self, limits: &Limits) -> io::Result<ReadBack> {
        let bytes = limits.memory_bytes.to_string();
        set(&self.memory, &bytes)?;
        let memory_bytes = number(&self.memory)?;
        check_memory(limits.memory_bytes, memory_bytes)?;
        if let Some(swap) = &self.memory_swap {
            set(swap, &bytes)?;
            check_memory(limits.memory_bytes, number(swap)?)?;
        }
        set(&self.pids, &(limits.pids + 1).to_string())?;
        let pids = number(&self.pids)?;
        if pids != limits.pids + 1 {
            return Err(weaker("pids", limits.pids + 1, pids));
        }
        let quota = limits.cpu_percent * CPU_PERIOD_US / 100;
        set(&self.quota, &quota.to_string())?;
        let (cpu_quota_us, cpu_period_us) = (number(&self.quota)?, number(&self.period)?);
        if cpu_quota_us != quota || cpu_period_us != CPU_PERIOD_US {
            return Err(weaker("cpu quota", quota, cpu_quota_us));
        }
        Ok(ReadBack {
            version: 1,
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
            (Alarm::Memory, &self.oom_alarm),
            (Alarm::Pids, &self.pids_events),
        ]
    }

    fn memory_alarm_is_eventfd(&self) -> bool {
        true
    }

    fn raised(&self, alarm: Alarm) -> u64 {
        match alarm {
            Alarm::Memory => {
                let mut count = [0_u8; 8];
                let _ = rustix::io::read(&self.oom_alarm, &mut count);
                self.usage().oom_kills
            }
            Alarm::Pids => {
                let mut buffer = [0_u8; 256];
                let count = rustix::io::pread(&self.pids_events, &mut buffer, 0).unwrap_or(0);
                keyed(&String::from_utf8_lossy(&buffer[..count]), "max").unwrap_or(0)
            }
        }
    }

    fn cpu_us(&self) -> u64 {
        number(&self.cpu_used).unwrap_or(0) / 1000
    }

    fn usage(&self) -> Usage {
        let of = |file: &File, key| {
            read(file)
                .ok()
                .and_then(|text| keyed(&text, key))
                .unwrap_or(0)
        };
        Usage {
            cpu_us: self.cpu_us(),
            memory_peak_bytes: number(&self.memory_peak).unwrap_or(0),
            pids_peak: self
                .pids_peak
                .as_ref()
                .and_then(|file| number(file).ok())
                .unwrap_or(0),
            oom_kills: of(&self.oom, "oom_kill"),
            throttled_us: of(&self.cpu_stat, "throttled_time") / 1000,
            ..Usage::default()
        }
    }

    fn members(&self) -> u64 {
        read(&self.members).map_or(0, |text| text.lines().count() as u64)
    }

    fn remove(&mut self) -> io::Result<()> {
        while let Some(folder) = self.folders.last() {
            match fs::remove_dir(folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            self.folders.pop();
        }
        Ok(())
    }
}
