//! A collector of OpenTelemetry for tests: takes messages over HTTP and decodes them, by the numbers of opentelemetry-proto 1.10 and by
//! none of ncpu's own code.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a message may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// It listens until the test ends.
pub struct Collector {
    /// `http://ADDRESS`.
    pub url: String,
    messages: Receiver<(String, Vec<u8>)>,
}

impl Collector {
    /// Begins to listen. Each connection gets the next of the answers, and the last for ever.
    pub fn start(answers: &'static [&'static str]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut at = 0;
            while let Ok((mut stream, _)) = listener.accept() {
                let mut bytes = Vec::new();
                let mut block = [0; 1 << 16];
                let (head, body) = loop {
                    let end = bytes.windows(4).position(|four: &[u8]| four == b"\r\n\r\n");
                    if let Some(end) = end {
                        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
                        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                        let length: usize = length.unwrap().parse().unwrap();
                        if bytes.len() >= end + 4 + length {
                            break (head, bytes[end + 4..].to_vec());
                        }
                    }
                    match stream.read(&mut block) {
                        Ok(n) if n > 0 => bytes.extend_from_slice(&block[..n]),
                        _ => return,
                    }
                };
                let answer = answers[at.min(answers.len() - 1)];
                at += 1;
                if stream.write_all(answer.as_bytes()).is_err() || sender.send((head, body)).is_err() {
                    return;
                }
            }
        });
        Collector { url, messages }
    }

    /// The next message: head and body.
    pub fn next(&self) -> (String, Vec<u8>) {
        self.messages.recv_timeout(PATIENCE).expect("a message")
    }
}

/// Profiles of a message: the sum of the values by process and type, and the names of all functions.
#[derive(Debug, Default)]
pub struct Decoded {
    pub sums: BTreeMap<(String, String), u64>,
    pub functions: Vec<String>,
}

enum Value<'a> {
    Int(u64),
    Fixed,
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than ten bytes");
}

/// All fields of a message; a byte that is left over fails.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Int(varint(&mut bytes)),
            1 => {
                bytes = &bytes[8..];
                Value::Fixed
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        out.push((tag >> 3, value));
    }
    out
}

fn messages(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    let ours = fields(bytes).into_iter().filter(|(field, _)| *field == number);
    let bytes = ours.map(|(_, value)| match value {
        Value::Bytes(bytes) => bytes,
        _ => panic!("field {number} is a number"),
    });
    bytes.collect()
}

fn int(bytes: &[u8], number: u64) -> u64 {
    let ours = fields(bytes).into_iter().find(|(field, _)| *field == number);
    ours.map_or(0, |(_, value)| match value {
        Value::Int(n) => n,
        _ => panic!("field {number} has another type"),
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Numbers, packed or one by one.
fn ints(bytes: &[u8], number: u64) -> Vec<u64> {
    let mut out = Vec::new();
    for (_, value) in fields(bytes).into_iter().filter(|(field, _)| *field == number) {
        match value {
            Value::Int(n) => out.push(n),
            Value::Bytes(mut packed) => {
                while !packed.is_empty() {
                    out.push(varint(&mut packed));
                }
            }
            Value::Fixed => panic!("field {number} is fixed"),
        }
    }
    out
}

/// Decodes an `ExportProfilesServiceRequest`.
pub fn decode(body: &[u8]) -> Decoded {
    let dictionaries = messages(body, 2);
    assert_eq!(dictionaries.len(), 1, "one dictionary");
    let words: Vec<String> = messages(dictionaries[0], 5).into_iter().map(text).collect();
    assert_eq!(words[0], "", "the first word is empty");
    let functions = messages(dictionaries[0], 3).into_iter().skip(1);
    let mut decoded = Decoded {
        functions: functions.map(|one| words[int(one, 1) as usize].clone()).collect(),
        ..Decoded::default()
    };
    for resource_profiles in messages(body, 1) {
        let attributes = messages(messages(resource_profiles, 1)[0], 1);
        let process = attributes.into_iter().find(|one| messages(one, 1)[0] == b"process.executable.name");
        let process = process.map_or_else(String::new, |one| text(messages(messages(one, 2)[0], 1)[0]));
        for scope_profiles in messages(resource_profiles, 2) {
            for profile in messages(scope_profiles, 2) {
                let ty = words[int(messages(profile, 1)[0], 1) as usize].clone();
                let values: u64 = messages(profile, 2).into_iter().flat_map(|sample| ints(sample, 4)).sum();
                *decoded.sums.entry((process.clone(), ty)).or_default() += values;
            }
        }
    }
    decoded
}
