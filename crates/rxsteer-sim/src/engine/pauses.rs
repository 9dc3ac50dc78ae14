//! Pauses: times in which a CPU does nothing, whatever waits for it.

use super::World;
use super::calendar::Other;
use super::cpu::{CurrentWork, State, Work};
use super::packet::{float_ns, whole_ns};
use rand_distr::{Distribution, Exp1};

impl World<'_> {
    /// Notes the first pause of each kind on each CPU.
    pub(crate) fn note_pauses(&mut self) {
        for kind in 0..self.scenario.pauses.len() as u16 {
            for cpu in 0..self.cpus.len() as u16 {
                self.note_pause(cpu, kind);
            }
        }
    }

    fn note_pause(&mut self, cpu: u16, kind: u16) {
        let mean = float_ns(self.scenario.pauses[usize::from(kind)].every_ns);
        let after: f64 = Exp1.sample(&mut self.rng);
        let at_ns = self.now + whole_ns(mean * after);
        self.calendar.note(at_ns, Other::Pause { cpu, kind });
    }

    /// Begins a pause, after the present one if there is one. The time counts as idle: no work is done in it.
    pub(crate) fn pause(&mut self, cpu: u16, kind: u16) {
        self.note_pause(cpu, kind);
        let lasts_ns = self.scenario.pauses[usize::from(kind)].lasts_ns;
        let state = &mut self.cpus[usize::from(cpu)];
        if !state.online {
            return;
        }
        if let State::Working(_) = state.state {
            let current = &mut state.current;
            current.paused_until_ns = current.paused_until_ns.max(self.now) + lasts_ns;
            current.paused_ns += lasts_ns;
            current.complete_ns += lasts_ns;
            current.until_ns += lasts_ns;
            self.calendar.note_step(cpu, current.until_ns);
            return;
        }
        let until_ns = self.now + lasts_ns;
        // What the host or the firmware runs meanwhile slows an SMT sibling down as other work does.
        self.working[usize::from(state.core)] += 1;
        state.current = CurrentWork {
            began_ns: self.now,
            complete_ns: until_ns,
            until_ns,
            paused_until_ns: until_ns,
            paused_ns: lasts_ns,
            ..CurrentWork::default()
        };
        state.state = State::Working(Work::Pause);
        self.calendar.note_step(cpu, until_ns);
    }
}
