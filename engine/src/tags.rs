//! What a duration is of: its quantity, and whether it is part of the measurement.

use crate::names::named;

named!(Tag {
    Connect "connect", Service "service", Response "response", SendLag "send_lag", Request "request", Push "push",
    PushStamp "push_stamp", ReceiveDelay "receive_delay", Setup "setup", PushLast "push_last",
    Step0 "step_0", Step1 "step_1", Step2 "step_2", Step3 "step_3", Step4 "step_4", Step5 "step_5", Step6 "step_6",
    Step7 "step_7", Step8 "step_8", Step9 "step_9", Step10 "step_10", Step11 "step_11", Step12 "step_12",
    Step13 "step_13", Step14 "step_14", Step15 "step_15",
});

impl Tag {
    #[inline]
    pub fn step(number: usize) -> Tag {
        Tag::ALL[Tag::Step0 as usize + number]
    }
}

/// Measured or warm-up: warm-up values have their own name and enter no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Measured,
    Warmup,
}

impl Part {
    #[inline]
    pub fn of(measured: bool) -> Part {
        if measured { Part::Measured } else { Part::Warmup }
    }
}

pub const TAGS: usize = Tag::ALL.len();
