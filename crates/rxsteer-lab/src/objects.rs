//! Loads the lab's BPF objects: single programs of them, with their settings and map sizes.

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};

use crate::error::{Bpf, LabError, Result};

/// What to load of an object.
pub(crate) struct ObjectSpec<'a> {
    /// The compiled object.
    pub(crate) bytes: &'a [u8],
    /// The programs to load; the others are left out.
    pub(crate) programs: &'a [&'a str],
    /// Its read-only settings, in the memory layout of the C structure.
    pub(crate) settings: &'a [u8],
    /// A map, and its number of entries.
    pub(crate) map: (&'a str, u32),
}

impl ObjectSpec<'_> {
    /// Loads the object.
    pub(crate) fn load(&self) -> Result<Object> {
        let what = || format!("load the BPF program {}", self.programs.join(" and "));
        let mut open = ObjectBuilder::default().open_memory(self.bytes).bpf(what)?;
        for mut program in open.progs_mut() {
            let is_named = self.programs.iter().any(|name| program.name() == *name);
            program.set_autoload(is_named);
        }
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name.ends_with(".rodata") {
                self.set(map.initial_value_mut())?;
            } else if name == self.map.0 {
                map.set_max_entries(self.map.1).bpf(what)?;
            }
        }
        open.load().bpf(what)
    }

    /// Writes the settings, which are the only read-only data of our objects.
    fn set(&self, data: Option<&mut [u8]>) -> Result<()> {
        let data = data.unwrap_or_default();
        if data.len() != self.settings.len() {
            return Err(LabError::Unreadable {
                who: format!("the compiler for {}", self.programs.join(" and ")),
                why: format!("settings of {} bytes, not {}", data.len(), self.settings.len()),
            });
        }
        data.copy_from_slice(self.settings);
        Ok(())
    }
}

/// The map with this name, which our objects have.
pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| LabError::Unreadable {
        who: "the compiler".to_owned(),
        why: format!("there is no map {name}"),
    })
}

/// The program with this name, which our objects have.
pub(crate) fn program<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::ProgramMut<'a>> {
    object.progs_mut().find(|program| program.name() == name).ok_or_else(|| LabError::Unreadable {
        who: "the compiler".to_owned(),
        why: format!("there is no program {name}"),
    })
}

/// The value of an array map at an index, as 64-bit words.
pub(crate) fn words(map: &impl MapCore, index: u32) -> Result<Vec<u64>> {
    let what = || format!("read {}", map.name().to_string_lossy());
    let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).bpf(what)?.unwrap_or_default();
    Ok(in_words(&value))
}

/// One word of the only entry of a per-CPU map, on each CPU.
pub(crate) fn on_each_cpu(object: &Object, name: &str, word: usize) -> Result<Vec<u64>> {
    let values = map(object, name)?
        .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .bpf(|| format!("read {name}"))?
        .unwrap_or_default();
    Ok(values.iter().map(|value| in_words(value).get(word).copied().unwrap_or(0)).collect())
}

/// Bytes as 64-bit words.
fn in_words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect()
}
