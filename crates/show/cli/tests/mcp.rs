//! `ncpu mcp`: a client that speaks the protocol, over recordings that `ncpu` itself has made.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::{err, ncpu, out};
use serde_json::{Value, json};

/// A part of each unit is done under one lock.
const MODEL: &str = r#"
name = "part"
unit = "ops"
work_ns = 10000
[[lock]]
name = "big"
kind = "qspin"
kernel = true
takes = 1
hold_ns = TIME
"#;

/// A client and the server that it has started.
struct Client {
    server: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    id: u64,
}

impl Client {
    fn start(dir: &Path) -> Client {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        let mut server =
            command.arg("mcp").arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (server.stdin.take(), BufReader::new(server.stdout.take().unwrap()));
        Client { server, to, from, id: 0 }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to.as_mut().unwrap(), "{message}").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        let id = self.id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = self.receive();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(id)), "{answer}");
        answer
    }

    /// The text that a tool answers, and whether it has failed.
    fn call(&mut self, name: &str, arguments: Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({"name": name, "arguments": arguments}));
        let result = &answer["result"];
        assert_eq!(result["content"][0]["type"], "text", "{answer}");
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        (text, result["isError"].as_bool().unwrap())
    }

    /// The server ends when its input does.
    fn end(mut self) {
        drop(self.to.take());
        assert!(self.server.wait().unwrap().success());
    }
}

/// A recording of a simulated program with a critical section of this length. Making it takes no root.
fn record(dir: &Path, name: &str, hold_ns: u64) -> String {
    let (model, recording) = (dir.join("model.toml"), dir.join(format!("{name}.ncpu")));
    fs::write(&model, MODEL.replace("TIME", &hold_ns.to_string())).unwrap();
    let (model, path) = (model.to_str().unwrap(), recording.to_str().unwrap());
    let made = ncpu(&["foresee", "--model", model, "--on", "2x4", "--cpus", "8", "--record", path]);
    assert!(made.status.success(), "{}", err(&made));
    path.into()
}

#[test]
fn an_assistant_asks_about_recordings() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let made = [record(dir, "before", 10_000), record(dir, "after", 30_000)];
    fs::create_dir(dir.join("empty")).unwrap();
    let mut client = Client::start(dir);
    let hello = client.ask(
        "initialize",
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
    );
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18", "{hello}");
    assert!(
        hello["result"]["capabilities"]["tools"].is_object()
            && hello["result"]["serverInfo"]["name"] == "ncpu"
    );
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    // A notification is not answered: the next answer is that of the ping.
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    let tools = client.ask("tools/list", json!({}));
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["recordings", "onion", "why", "diff", "foresee"]);
    let (list, failed) = client.call("recordings", json!({}));
    assert!(!failed && list.lines().count() == 2, "{list}");
    assert!(list.contains("before.ncpu: ") && list.contains("after.ncpu: "), "{list}");
    // The assistant sees the same as a user.
    let user = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        let told = command.args(args).env("COLUMNS", "100").env("NO_COLOR", "1").output().unwrap();
        assert!(told.status.success(), "{}", err(&told));
        out(&told)
    };
    let [before, after] = made.each_ref().map(String::as_str);
    for (tool, arguments, args) in [
        ("onion", json!({"recording": "before.ncpu"}), vec!["report", before]),
        (
            "onion",
            json!({"recording": "before.ncpu", "table": "layers", "top": 2}),
            vec!["report", before, "--table=layers", "-o", "json", "--top=2"],
        ),
        ("why", json!({"recording": "before.ncpu"}), vec!["why", before]),
        (
            "diff",
            json!({"before": "before.ncpu", "after": "after.ncpu", "work": "1,1"}),
            vec!["diff", before, after, "--work=1,1"],
        ),
    ] {
        let (told, failed) = client.call(tool, arguments);
        assert!(!failed && told.starts_with(&user(&args)) && !told.is_empty(), "{tool}: {told}");
    }
    // The model of a simulation is not a recording to predict from: the assistant reads why.
    let (why, _) = client.call("foresee", json!({"recording": "before.ncpu", "on": "2x8"}));
    assert!(why.contains("this recording is a simulation"), "{why}");
    let (why, failed) = client.call("why", json!({"recording": "before.ncpu", "what": "no such layer"}));
    assert!(failed && why.contains("unknown cause or layer"), "{why}");
    let (why, failed) = client.call("onion", json!({"recording": "none"}));
    assert!(failed && why.contains("no recording none"), "{why}");
    let (why, failed) = client.call("why", json!({"recording": "../.."}));
    assert!(failed && why.contains("no recording"), "{why}");
    let (why, failed) = client.call("diff", json!({"before": "none", "after": "none", "html": "/tmp/x"}));
    assert!(failed && why.contains("unknown argument html"), "{why}");
    let unknown = client.ask("tools/call", json!({"name": "fix"}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(client.ask("resources/list", json!({}))["error"]["code"], -32601);
    client.send(&json!([1, 2]));
    assert_eq!(client.receive()["error"]["code"], -32600);
    client.end();
}
