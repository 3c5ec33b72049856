// mock.rs - ground-truth OpenAI-compatible streaming server. std-only Rust, one thread, epoll.
// Build: rustc -O -C target-cpu=native -o mock mock.rs
// Run:   ./mock --port 9100 --ttft 50 --itl 10 --tokens 64 [--mode normal] [--batch 1] [--tpc 1]
// Control while running: GET /ctl?ttft=50&itl=10&tokens=64&mode=normal&batch=1&tpc=1&reset=1 ; GET /stats ; GET /reset ; GET /dump (writes per-request JSONL to --dump path)
// ttft=0 & itl=0 => zero-latency mode: round-robin over the active streams, `batch` events per write.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::Write as _;

type CInt = i32;
#[repr(C)]
#[derive(Clone, Copy)]
#[repr(packed)]
struct EpollEvent { events: u32, data: u64 }
#[repr(C)]
#[derive(Clone, Copy)]
struct Timespec { sec: i64, nsec: i64 }
#[repr(C)]
struct SockAddrIn { family: u16, port: u16, addr: u32, zero: [u8; 8] }
#[repr(C)]
struct Rusage { utime: [i64; 2], stime: [i64; 2], rest: [i64; 14] }
extern "C" {
    fn socket(d: CInt, t: CInt, p: CInt) -> CInt;
    fn bind(fd: CInt, a: *const SockAddrIn, l: u32) -> CInt;
    fn listen(fd: CInt, b: CInt) -> CInt;
    fn accept4(fd: CInt, a: *mut u8, l: *mut u32, f: CInt) -> CInt;
    fn setsockopt(fd: CInt, lv: CInt, n: CInt, v: *const CInt, l: u32) -> CInt;
    fn epoll_create1(f: CInt) -> CInt;
    fn epoll_ctl(e: CInt, op: CInt, fd: CInt, ev: *mut EpollEvent) -> CInt;
    fn epoll_pwait2(e: CInt, ev: *mut EpollEvent, n: CInt, ts: *const Timespec, s: *const u8) -> CInt;
    fn read(fd: CInt, b: *mut u8, n: usize) -> isize;
    fn send(fd: CInt, b: *const u8, n: usize, f: CInt) -> isize;
    fn close(fd: CInt) -> CInt;
    fn clock_gettime(c: CInt, t: *mut Timespec) -> CInt;
    fn getrusage(w: CInt, r: *mut Rusage) -> CInt;
    fn prctl(o: CInt, a: u64, b: u64, c: u64, d: u64) -> CInt;
    fn __errno_location() -> *mut CInt;
}
const EPOLLIN: u32 = 1; const EPOLLOUT: u32 = 4; const EPOLLERR: u32 = 8; const EPOLLHUP: u32 = 16; const EPOLLRDHUP: u32 = 0x2000;
fn now() -> u64 { let mut t = Timespec { sec: 0, nsec: 0 }; unsafe { clock_gettime(1, &mut t) }; t.sec as u64 * 1_000_000_000 + t.nsec as u64 }
fn cpu_s() -> (f64, f64) { let mut r: Rusage = unsafe { std::mem::zeroed() }; unsafe { getrusage(0, &mut r) }; (r.utime[0] as f64 + r.utime[1] as f64 / 1e6, r.stime[0] as f64 + r.stime[1] as f64 / 1e6) }

struct Hist { b: Vec<u32>, n: u64, sum: f64, max: u64 }
impl Hist {
    fn new() -> Self { Hist { b: vec![0; 200_000 + 100_000], n: 0, sum: 0.0, max: 0 } }
    fn clear(&mut self) { self.b.iter_mut().for_each(|x| *x = 0); self.n = 0; self.sum = 0.0; self.max = 0; }
    fn add(&mut self, ns: u64) {
        let us = ns / 1000;
        let i = if us < 200_000 { us as usize } else { (200_000 + ((us - 200_000) / 1000) as usize).min(299_999) };
        self.b[i] += 1; self.n += 1; self.sum += ns as f64; if ns > self.max { self.max = ns }
    }
    fn q(&self, p: f64) -> f64 {
        if self.n == 0 { return 0.0 }
        let want = (p * (self.n as f64 - 1.0)).floor() as u64 + 1; let mut c = 0u64;
        for (i, x) in self.b.iter().enumerate() { c += *x as u64; if c >= want { return if i < 200_000 { i as f64 / 1000.0 + 0.0005 } else { 200.0 + (i - 200_000) as f64 } } }
        self.max as f64 / 1e6
    }
    fn json(&self) -> String { format!("{{\"n\":{},\"mean\":{:.4},\"p50\":{:.4},\"p90\":{:.4},\"p99\":{:.4},\"max\":{:.4}}}", self.n, if self.n > 0 { self.sum / self.n as f64 / 1e6 } else { 0.0 }, self.q(0.5), self.q(0.9), self.q(0.99), self.max as f64 / 1e6) }
}
#[derive(Clone, Debug)]
struct Cfg { ttft: u64, itl: u64, tokens: u32, cap: u32, mode: String, batch: u32, tpc: u32, every: u64, full: bool, model: String, dump: String, port: u16 }

struct Step { off: u64, bytes: Vec<u8>, tok: u32, act: u8 } // act: 0 none, 1 end ok, 2 close FIN, 3 RST, 4 stall
struct Conn {
    fd: CInt, gen: u32, rbuf: Vec<u8>, wbuf: Vec<u8>, wpos: usize, want_w: bool,
    active: bool, id: u64, n: u32, sent: u32, t_recv: u64, t_arr: u64, base: u64, last: u64, t_first: u64, chat: bool, usage: bool, pt: u32,
    pre: Vec<u8>, suf: Vec<u8>, head: bool, script: Option<Vec<Step>>, si: usize, times: Vec<u64>, one_shot: bool, keep: bool, xid: String, dead: bool,
}
struct Rec { id: u64, xid: String, recv: u64, first: u64, last: u64, n: u32, times: Vec<u64> }
struct Srv {
    ep: CInt, conns: Vec<Option<Box<Conn>>>, free: Vec<usize>, gens: Vec<u32>, heap: BinaryHeap<Reverse<(u64, usize, u32)>>, ready: VecDeque<(usize, u32)>,
    cfg: Cfg, h_ttft: Hist, h_itl: Hist, h_late: Hist, recs: Vec<Rec>, next_id: u64, started: u64, done: u64, aborted: u64, errs: u64, tokens: u64, events: u64, bytes: u64, blocked: u64, accepts: u64,
    cur: u64, peak: u64, integ: f64, last_c: u64, t_firstreq: u64, t_lastdone: u64, cpu0: (f64, f64), scratch: Vec<u8>, seq: u64,
}
const WORDS: [&str; 64] = ["time","year","people","way","day","man","thing","woman","life","child","world","school","state","family","student","group","country","problem","hand","part","place","case","week","company","system","program","question","work","government","number","night","point","home","water","room","mother","area","money","story","fact","month","lot","right","study","book","eye","job","word","business","issue","side","kind","head","house","service","friend","father","power","hour","game","line","end","member","law"];
const CJK: [&str; 8] = ["日本","語の","テスト","é","🙂","한국","üß","中文"];

fn chunk(out: &mut Vec<u8>, data: &[&[u8]]) { // one HTTP chunk
    let l: usize = data.iter().map(|d| d.len()).sum();
    let _ = write!(out, "{:x}\r\n", l);
    for d in data { out.extend_from_slice(d) }
    out.extend_from_slice(b"\r\n");
}
// top-level JSON key scan
fn skip_ws(b: &[u8], mut i: usize) -> usize { while i < b.len() && (b[i] == b' ' || b[i] == b'\n' || b[i] == b'\r' || b[i] == b'\t') { i += 1 } i }
fn skip_str(b: &[u8], mut i: usize) -> usize { i += 1; while i < b.len() { match b[i] { b'\\' => i += 2, b'"' => return i + 1, _ => i += 1 } } i }
fn skip_val(b: &[u8], mut i: usize) -> usize {
    i = skip_ws(b, i); if i >= b.len() { return i }
    match b[i] {
        b'"' => skip_str(b, i),
        b'{' | b'[' => { let mut d = 0; while i < b.len() { match b[i] { b'"' => { i = skip_str(b, i); continue } b'{' | b'[' => d += 1, b'}' | b']' => { d -= 1; if d == 0 { return i + 1 } } _ => {} } i += 1 } i }
        _ => { while i < b.len() && b[i] != b',' && b[i] != b'}' && b[i] != b']' { i += 1 } i }
    }
}
fn top(b: &[u8], f: &mut dyn FnMut(&[u8], &[u8])) {
    let mut i = skip_ws(b, 0); if i >= b.len() || b[i] != b'{' { return } i += 1;
    loop {
        i = skip_ws(b, i); if i >= b.len() || b[i] != b'"' { return }
        let k0 = i + 1; i = skip_str(b, i); let k = &b[k0..i.saturating_sub(1).max(k0)];
        i = skip_ws(b, i); if i >= b.len() || b[i] != b':' { return } i += 1;
        let v0 = skip_ws(b, i); i = skip_val(b, v0).min(b.len()); f(k, &b[v0..i]);
        i = skip_ws(b, i); if i < b.len() && b[i] == b',' { i += 1; continue } return;
    }
}
fn num(v: &[u8]) -> Option<u32> { std::str::from_utf8(v).ok()?.trim().parse::<f64>().ok().map(|x| x as u32) }
fn find(h: &[u8], n: &[u8]) -> Option<usize> { h.windows(n.len()).position(|w| w == n) }

impl Srv {
    fn conc(&mut self, d: i64, t: u64) { if self.last_c > 0 { self.integ += self.cur as f64 * (t.saturating_sub(self.last_c)) as f64 } self.last_c = t; self.cur = (self.cur as i64 + d).max(0) as u64; if self.cur > self.peak { self.peak = self.cur } }
    fn reset(&mut self) {
        self.h_ttft.clear(); self.h_itl.clear(); self.h_late.clear(); self.recs.clear(); self.started = 0; self.done = 0; self.aborted = 0; self.errs = 0; self.tokens = 0; self.events = 0; self.bytes = 0; self.blocked = 0; self.accepts = 0;
        self.peak = self.cur; self.integ = 0.0; self.last_c = 0; self.t_firstreq = 0; self.t_lastdone = 0; self.cpu0 = cpu_s(); self.seq = 0;
    }
    fn stats(&mut self) -> String {
        let t = now(); self.conc(0, t); let c = cpu_s();
        let dur = if self.t_lastdone > self.t_firstreq { (self.t_lastdone - self.t_firstreq) as f64 / 1e9 } else { 0.0 };
        format!("{{\"started\":{},\"done\":{},\"client_aborted\":{},\"errors_served\":{},\"active\":{},\"tokens\":{},\"events\":{},\"bytes\":{},\"accepts\":{},\"blocked_writes\":{},\"dur_s\":{:.4},\"req_s\":{:.2},\"tok_s\":{:.1},\"peak_conc\":{},\"mean_conc\":{:.2},\"cpu_user\":{:.3},\"cpu_sys\":{:.3},\"ttft_ms\":{},\"itl_ms\":{},\"late_ms\":{},\"t_first\":{},\"t_last\":{}}}\n",
            self.started, self.done, self.aborted, self.errs, self.cur, self.tokens, self.events, self.bytes, self.accepts, self.blocked, dur, if dur > 0.0 { self.done as f64 / dur } else { 0.0 }, if dur > 0.0 { self.tokens as f64 / dur } else { 0.0 },
            self.peak, if dur > 0.0 { self.integ / 1e9 / dur } else { 0.0 }, c.0 - self.cpu0.0, c.1 - self.cpu0.1, self.h_ttft.json(), self.h_itl.json(), self.h_late.json(), self.t_firstreq, self.t_lastdone)
    }
    fn epmod(&self, idx: usize, ev: u32) { let c = self.conns[idx].as_ref().unwrap(); let mut e = EpollEvent { events: ev, data: (idx as u64) | ((c.gen as u64) << 32) }; unsafe { epoll_ctl(self.ep, 3, c.fd, &mut e) }; }
    fn kill(&mut self, idx: usize, rst: bool) {
        if let Some(c) = self.conns[idx].take() {
            if c.active { self.aborted += 1; let t = now(); self.conc(-1, t); if t > self.t_lastdone { self.t_lastdone = t } }
            if rst { let l = [1i32, 0i32]; unsafe { setsockopt(c.fd, 1, 13, l.as_ptr(), 8) }; }
            unsafe { close(c.fd) }; self.gens[idx] += 1; self.free.push(idx);
        }
    }
    // returns false if conn died
    fn flush(&mut self, idx: usize) -> bool {
        let c = self.conns[idx].as_mut().unwrap();
        while c.wpos < c.wbuf.len() {
            let r = unsafe { send(c.fd, c.wbuf.as_ptr().add(c.wpos), c.wbuf.len() - c.wpos, 0x4000) };
            if r < 0 {
                let e = unsafe { *__errno_location() };
                if e == 11 { if !c.want_w { c.want_w = true; self.blocked += 1; self.epmod(idx, EPOLLIN | EPOLLOUT | EPOLLRDHUP) } return true }
                if e == 4 { continue }
                self.kill(idx, false); return false;
            }
            c.wpos += r as usize; self.bytes += r as u64;
        }
        c.wbuf.clear(); c.wpos = 0;
        if c.want_w { c.want_w = false; self.epmod(idx, EPOLLIN | EPOLLRDHUP) }
        true
    }
    fn respond(&mut self, idx: usize, status: &str, extra: &str, ct: &str, body: &[u8]) {
        let c = self.conns[idx].as_mut().unwrap();
        let _ = write!(c.wbuf, "HTTP/1.1 {}\r\nserver: mock\r\ncontent-type: {}\r\n{}content-length: {}\r\n\r\n", status, ct, extra, body.len());
        c.wbuf.extend_from_slice(body);
        self.flush(idx);
    }
    fn usage_json(cfg: &Cfg, pt: u32, ct: u32) -> String {
        if cfg.mode == "cached" { format!("{{\"prompt_tokens\":{},\"total_tokens\":{},\"completion_tokens\":{},\"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}", pt, pt + ct, ct, pt / 2) }
        else if cfg.mode == "reasoning" || cfg.mode == "reasoning2" { format!("{{\"prompt_tokens\":{},\"total_tokens\":{},\"completion_tokens\":{},\"completion_tokens_details\":{{\"reasoning_tokens\":{}}}}}", pt, pt + ct, ct, ct / 2) }
        else { format!("{{\"prompt_tokens\":{},\"total_tokens\":{},\"completion_tokens\":{}}}", pt, pt + ct, ct) }
    }
    fn start(&mut self, idx: usize, chat: bool, body: &[u8], t: u64, keep: bool, xid: String) {
        let (mut n, mut stream, mut usage, mut content_len, mut maxt) = (self.cfg.tokens, false, false, 0usize, None);
        top(body, &mut |k, v| match k {
            b"stream" => stream = v.starts_with(b"true"),
            b"max_tokens" | b"max_completion_tokens" => if let Some(x) = num(v) { if x > 0 { maxt = Some(x) } },
            b"stream_options" => top(v, &mut |k2, v2| { if k2 == b"include_usage" { usage = v2.starts_with(b"true") } }),
            b"messages" | b"prompt" => content_len = v.len(),
            _ => {}
        });
        if let Some(m) = maxt { n = m } if self.cfg.cap > 0 { n = n.min(self.cfg.cap) }
        let pt = (content_len / 5).max(1) as u32; // rough: ~5 bytes a word
        self.seq += 1; let seq = self.seq; let id = self.next_id; self.next_id += 1;
        if self.t_firstreq == 0 { self.t_firstreq = t }
        let mode = self.cfg.mode.clone();
        let hit = self.cfg.every <= 1 || seq % self.cfg.every == 0;
        if mode == "429" && hit { self.errs += 1; self.respond(idx, "429 Too Many Requests", "retry-after: 1\r\n", "application/json", b"{\"error\":{\"message\":\"rate limited\",\"type\":\"rate_limit_error\",\"code\":429}}"); return }
        if mode == "http500" && hit { self.errs += 1; self.respond(idx, "500 Internal Server Error", "", "application/json", b"{\"error\":{\"message\":\"engine dead\",\"type\":\"server_error\",\"code\":500}}"); return }
        self.started += 1; self.conc(1, t);
        let (ttft, itl) = (self.cfg.ttft, self.cfg.itl);
        let model = self.cfg.model.clone(); let cfg = self.cfg.clone();
        let usage = usage && mode != "nousage";
        let c = self.conns[idx].as_mut().unwrap();
        c.active = true; c.id = id; c.n = n; c.sent = 0; c.t_recv = t; c.last = 0; c.t_first = 0; c.chat = chat; c.usage = usage; c.pt = pt; c.head = false; c.script = None; c.si = 0; c.times.clear(); c.one_shot = !stream; c.keep = keep; c.xid = xid; c.dead = false;
        c.base = t + ttft;
        c.pre.clear(); c.suf.clear();
        if chat { let _ = write!(c.pre, "data: {{\"id\":\"chatcmpl-{:010}\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,\"model\":\"{}\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" ", id, model); c.suf.extend_from_slice(b"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n"); }
        else { let _ = write!(c.pre, "data: {{\"id\":\"cmpl-{:010}\",\"object\":\"text_completion\",\"created\":1764000000,\"model\":\"{}\",\"choices\":[{{\"index\":0,\"text\":\" ", id, model); c.suf.extend_from_slice(b"\",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]}\n\n"); }
        if !stream { c.base = t + ttft + itl * (n.max(1) as u64 - 1); let (b, g) = (c.base, c.gen); if ttft + itl == 0 { self.ready.push_back((idx, g)) } else { self.heap.push(Reverse((b, idx, g))) } return }
        let normal = mode == "normal" || mode == "nousage" || mode == "cached" || mode == "429" || mode == "http500" || !hit;
        if !normal {
            let mut s: Vec<Step> = vec![];
            let hdr = b"HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            let nl: &[u8] = if mode == "awkward" { b"\r\n\r\n" } else { b"\n\n" };
            let ev = |j: String| -> Vec<u8> { let mut o = vec![]; o.extend_from_slice(b"data: "); o.extend_from_slice(j.as_bytes()); o.extend_from_slice(nl); o };
            let pfx = if chat { format!("{{\"id\":\"chatcmpl-{:010}\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,\"model\":\"{}\"", id, model) } else { format!("{{\"id\":\"cmpl-{:010}\",\"object\":\"text_completion\",\"created\":1764000000,\"model\":\"{}\"", id, model) };
            let delta = |key: &str, txt: &str, fin: &str| -> String { let f = if fin.is_empty() { "null".to_string() } else { format!("\"{}\"", fin) };
                if chat { format!("{},\"choices\":[{{\"index\":0,\"delta\":{{\"{}\":\"{}\"}},\"logprobs\":null,\"finish_reason\":{}}}]}}", pfx, key, txt, f) } else { format!("{},\"choices\":[{{\"index\":0,\"text\":\"{}\",\"logprobs\":null,\"finish_reason\":{}}}]}}", pfx, txt, f) } };
            let role = format!("{},\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}]}}", pfx);
            let ck = |d: &[u8]| -> Vec<u8> { let mut o = vec![]; chunk(&mut o, &[d]); o };
            if mode == "stall0" { s.push(Step { off: 0, bytes: vec![], tok: 0, act: 4 }) }
            else {
                s.push(Step { off: 0, bytes: hdr, tok: 0, act: 0 });
                let early = mode == "role_early";
                if chat { s.push(Step { off: if early { 0 } else { ttft }, bytes: ck(&ev(role)), tok: 0, act: 0 }) }
                let half = n / 2; let mut i = 0u32; let mut off = ttft; let cut = 5u32.min(n);
                let cuts = ["disconnect", "reset", "errjson", "stall", "errjson_nodone"].contains(&mode.as_str());
                if mode == "errjson_first" { s.push(Step { off: ttft, bytes: ck(&ev("{\"error\":{\"message\":\"engine dead\",\"type\":\"server_error\",\"code\":500}}".into())), tok: 0, act: 0 }); s.push(Step { off: ttft, bytes: b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n".to_vec(), tok: 0, act: 1 }); }
                else {
                while i < n && !(cuts && i >= cut) {
                    let k = cfg.tpc.max(1).min(n - i); let mut txt = String::new();
                    for j in 0..k { if mode == "awkward" { txt.push_str(CJK[((i + j) % 8) as usize]) } else { txt.push(' '); txt.push_str(WORDS[((i + j + id as u32) % 64) as usize]) } }
                    let key = if mode == "reasoning" && i < half { "reasoning_content" } else if mode == "reasoning2" && i < half { "reasoning" } else { "content" };
                    let last = i + k >= n; let fin = if last { "length" } else { "" };
                    if mode == "emptytok" && i % 4 == 3 && !last { txt.clear(); }
                    if mode == "awkward" {
                        s.push(Step { off, bytes: ck(b": ping\r\n\r\n"), tok: 0, act: 0 });
                        let e = ev(delta(key, &txt, fin)); let p = e.iter().position(|b| *b >= 0x80).map(|p| p + 1).unwrap_or(e.len() / 2);
                        s.push(Step { off, bytes: ck(&e[..p]), tok: 0, act: 0 });
                        s.push(Step { off: off + itl / 2, bytes: ck(&e[p..]), tok: k, act: 0 });
                    } else { s.push(Step { off, bytes: ck(&ev(delta(key, &txt, fin))), tok: k, act: 0 }) }
                    i += k; off += itl;
                }
                let o2 = s.last().unwrap().off;
                match mode.as_str() {
                    "disconnect" => s.push(Step { off: o2 + itl, bytes: vec![], tok: 0, act: 2 }),
                    "reset" => s.push(Step { off: o2 + itl, bytes: vec![], tok: 0, act: 3 }),
                    "stall" => s.push(Step { off: o2 + itl, bytes: vec![], tok: 0, act: 4 }),
                    "errjson" | "errjson_nodone" => { let mut b = ck(&ev("{\"error\":{\"message\":\"engine dead\",\"type\":\"server_error\",\"code\":500}}".into())); if mode == "errjson" { b.extend(ck(&ev("[DONE]".into()))) } b.extend_from_slice(b"0\r\n\r\n"); s.push(Step { off: o2 + itl, bytes: b, tok: 0, act: 1 }) }
                    _ => { let mut b = vec![];
                        if usage { b.extend(ck(&ev(format!("{},\"choices\":[],\"usage\":{}}}", pfx, Self::usage_json(&cfg, pt, n))))) }
                        if mode != "nodone" { b.extend(ck(&ev("[DONE]".into()))) }
                        b.extend_from_slice(b"0\r\n\r\n"); s.push(Step { off: o2, bytes: b, tok: 0, act: 1 }) }
                } }
            }
            c.script = Some(s); let g = c.gen; c.base = t; self.heap.push(Reverse((t, idx, g))); return;
        }
        let g = c.gen; let b = c.base;
        if ttft + itl == 0 { self.ready.push_back((idx, g)) } else {
            // headers at once, like uvicorn
            c.wbuf.extend_from_slice(b"HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"); c.head = true;
            if self.flush(idx) { self.heap.push(Reverse((b, idx, g))) }
        }
    }
    fn finish(&mut self, idx: usize) {
        let t = now(); self.done += 1; self.conc(-1, t); if t > self.t_lastdone { self.t_lastdone = t }
        let full = self.cfg.full; let c = self.conns[idx].as_mut().unwrap(); c.active = false;
        if self.recs.len() < 4_000_000 { let times = if full { std::mem::take(&mut c.times) } else { vec![] }; self.recs.push(Rec { id: c.id, xid: std::mem::take(&mut c.xid), recv: c.t_recv, first: c.t_first, last: c.last, n: c.sent, times }) }
        if !c.keep { self.kill(idx, false); return }
        if !self.conns[idx].as_ref().unwrap().rbuf.is_empty() { self.parse(idx, t) }
    }
    fn mark(&mut self, idx: usize, k: u32, t: u64) { // k tokens sent in one event at t
        let full = self.cfg.full; let c = self.conns[idx].as_mut().unwrap();
        if c.t_first == 0 { c.t_first = t; self.h_ttft.add(t - c.t_recv) } else { self.h_itl.add(t - c.last) }
        c.last = t; c.sent += k; self.tokens += k as u64; self.events += 1; if full { c.times.push(t) }
    }
    fn step(&mut self, idx: usize, gen: u32, due: u64) {
        { let c = match self.conns[idx].as_ref() { Some(c) if c.gen == gen && c.active => c, _ => return };
          if c.script.is_some() { return self.step_script(idx, gen) } }
        let zero = due == 0; let batch = if zero { self.cfg.batch.max(1) } else { 1 };
        let mut scratch = std::mem::take(&mut self.scratch); scratch.clear();
        let c = self.conns[idx].as_mut().unwrap();
        if c.one_shot {
            let t = now(); let mut txt = String::new(); for i in 0..c.n { txt.push(' '); txt.push_str(WORDS[((i as u64 + c.id) % 64) as usize]) }
            let (id, n, chat, pt) = (c.id, c.n, c.chat, c.pt); c.sent = n; c.t_first = t; c.last = t; self.tokens += n as u64; self.events += 1;
            let u = Self::usage_json(&self.cfg, pt, n);
            let body = if chat { format!("{{\"id\":\"chatcmpl-{:010}\",\"object\":\"chat.completion\",\"created\":1764000000,\"model\":\"{}\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{}\"}},\"finish_reason\":\"length\"}}],\"usage\":{}}}", id, self.cfg.model, txt, u) } else { format!("{{\"id\":\"cmpl-{:010}\",\"object\":\"text_completion\",\"created\":1764000000,\"model\":\"{}\",\"choices\":[{{\"index\":0,\"text\":\"{}\",\"finish_reason\":\"length\"}}],\"usage\":{}}}", id, self.cfg.model, txt, u) };
            self.scratch = scratch; self.respond(idx, "200 OK", "", "application/json", body.as_bytes()); if self.conns[idx].is_some() { self.finish(idx) } return;
        }
        if zero && c.want_w { self.scratch = scratch; return } // resumed on EPOLLOUT
        if !c.head { scratch.extend_from_slice(b"HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"); c.head = true; }
        if c.sent == 0 && c.chat {
            let mut e = vec![]; let _ = write!(e, "data: {{\"id\":\"chatcmpl-{:010}\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,\"model\":\"{}\",\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n", c.id, self.cfg.model); chunk(&mut scratch, &[&e]);
        }
        let mut k = 0; let tpc = self.cfg.tpc.max(1);
        let mut sent = c.sent; let mut evs: [u32; 64] = [0; 64];
        while k < batch.min(64) && sent < c.n {
            let m = tpc.min(c.n - sent); let last = sent + m >= c.n;
            let mut txt: [u8; 1024] = [0; 1024]; let mut tl = 0;
            for j in 0..m { if j > 0 { txt[tl] = b' '; tl += 1 } let w = WORDS[((sent as u64 + j as u64 + c.id) % 64) as usize].as_bytes(); if tl + w.len() + 1 > 1024 { break } txt[tl..tl + w.len()].copy_from_slice(w); tl += w.len(); }
            if last { let suf: &[u8] = if c.chat { b"\"},\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\n" } else { b"\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null}]}\n\n" }; chunk(&mut scratch, &[&c.pre, &txt[..tl], suf]) }
            else { chunk(&mut scratch, &[&c.pre, &txt[..tl], &c.suf]) }
            sent += m; evs[k as usize] = m; k += 1;
        }
        let t = now();
        if due > 0 { self.h_late.add(t.saturating_sub(due)) }
        let fin = sent >= c.n;
        c.wbuf.extend_from_slice(&scratch); self.scratch = scratch;
        for i in 0..k as usize { self.mark(idx, evs[i], t) }
        if !self.flush(idx) { return }
        let c = self.conns[idx].as_mut().unwrap();
        if fin {
            if c.usage {
                let u = Self::usage_json(&self.cfg, c.pt, c.n); let mut e = vec![];
                let _ = if c.chat { write!(e, "data: {{\"id\":\"chatcmpl-{:010}\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,\"model\":\"{}\",\"choices\":[],\"usage\":{}}}\n\n", c.id, self.cfg.model, u) } else { write!(e, "data: {{\"id\":\"cmpl-{:010}\",\"object\":\"text_completion\",\"created\":1764000000,\"model\":\"{}\",\"choices\":[],\"usage\":{}}}\n\n", c.id, self.cfg.model, u) };
                chunk(&mut c.wbuf, &[&e]);
            }
            c.wbuf.extend_from_slice(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
            if self.flush(idx) { self.finish(idx) }
        } else if zero { if !c.want_w { self.ready.push_back((idx, gen)) } }
        else { let events_done = (c.sent + tpc - 1) / tpc; let d = c.base + self.cfg.itl * events_done as u64; self.heap.push(Reverse((d, idx, gen))) }
    }
    fn step_script(&mut self, idx: usize, gen: u32) {
        loop {
            let t = now(); let c = self.conns[idx].as_mut().unwrap(); let s = c.script.as_ref().unwrap();
            if c.si >= s.len() { return }
            let st = &s[c.si]; let due = c.t_recv + st.off;
            if due > t + 1000 { self.heap.push(Reverse((due, idx, gen))); return }
            let (tok, act) = (st.tok, st.act); c.wbuf.extend_from_slice(&st.bytes); c.si += 1;
            if tok > 0 { self.mark(idx, tok, t) }
            if !self.flush(idx) { return }
            match act { 1 => { self.finish(idx); return } 2 => { self.errs += 1; self.kill(idx, false); return } 3 => { self.errs += 1; self.kill(idx, true); return } 4 => { self.errs += 1; return } _ => {} }
        }
    }
    fn parse(&mut self, idx: usize, t: u64) {
        loop {
            let c = match self.conns[idx].as_mut() { Some(c) => c, None => return };
            if c.active { return } // pipelined request waits
            let he = match find(&c.rbuf, b"\r\n\r\n") { Some(p) => p, None => return };
            let head = String::from_utf8_lossy(&c.rbuf[..he]).to_string();
            let mut lines = head.split("\r\n"); let rl = lines.next().unwrap_or(""); let mut it = rl.split(' ');
            let (method, path) = (it.next().unwrap_or("").to_string(), it.next().unwrap_or("").to_string());
            let (mut cl, mut chunked, mut keep, mut xid, mut expect) = (0usize, false, true, String::new(), false);
            for l in lines { if let Some((k, v)) = l.split_once(':') { let k = k.to_ascii_lowercase(); let v = v.trim();
                match k.as_str() { "content-length" => cl = v.parse().unwrap_or(0), "transfer-encoding" => chunked = v.eq_ignore_ascii_case("chunked"), "connection" => if v.eq_ignore_ascii_case("close") { keep = false }, "x-request-id" => xid = v.to_string(), "expect" => expect = true, _ => {} } } }
            let b0 = he + 4; let body: Vec<u8>; let used;
            if chunked {
                let mut o = vec![]; let mut i = b0; let mut ok = false;
                loop { let rest = &c.rbuf[i.min(c.rbuf.len())..]; let p = match find(rest, b"\r\n") { Some(p) => p, None => break };
                    let sz = usize::from_str_radix(String::from_utf8_lossy(&rest[..p]).split(';').next().unwrap_or("0").trim(), 16).unwrap_or(0);
                    if rest.len() < p + 2 + sz + 2 { break } o.extend_from_slice(&rest[p + 2..p + 2 + sz]); i += p + 2 + sz + 2; if sz == 0 { ok = true; break } }
                if !ok { return } body = o; used = i;
            } else {
                if c.rbuf.len() < b0 + cl { if expect && c.rbuf.len() == b0 { c.wbuf.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"); self.flush(idx); } return }
                body = c.rbuf[b0..b0 + cl].to_vec(); used = b0 + cl;
            }
            c.rbuf.drain(..used);
            let (p, q) = match path.split_once('?') { Some((a, b)) => (a.to_string(), b.to_string()), None => (path.clone(), String::new()) };
            match (method.as_str(), p.as_str()) {
                ("POST", "/v1/chat/completions") => self.start(idx, true, &body, t, keep, xid),
                ("POST", "/v1/completions") => self.start(idx, false, &body, t, keep, xid),
                (_, "/v1/models") => { let b = format!("{{\"object\":\"list\",\"data\":[{{\"id\":\"{}\",\"object\":\"model\",\"created\":1764000000,\"owned_by\":\"mock\",\"root\":\"{}\",\"max_model_len\":32768}}]}}", self.cfg.model, self.cfg.model); self.respond(idx, "200 OK", "", "application/json", b.as_bytes()) }
                (_, "/health") | (_, "/ping") | (_, "/healthz") => self.respond(idx, "200 OK", "", "text/plain", b"ok"),
                (_, "/stats") => { let s = self.stats(); self.respond(idx, "200 OK", "", "application/json", s.as_bytes()) }
                (_, "/reset") => { self.reset(); self.respond(idx, "200 OK", "", "text/plain", b"ok\n") }
                (_, "/dump") => { let mut o = String::new(); use std::fmt::Write as _;
                    for r in &self.recs { let _ = writeln!(o, "{{\"id\":{},\"xid\":\"{}\",\"recv\":{},\"first\":{},\"last\":{},\"n\":{},\"times\":{:?}}}", r.id, r.xid, r.recv, r.first, r.last, r.n, r.times); }
                    let ok = std::fs::write(&self.cfg.dump, o).is_ok(); self.respond(idx, "200 OK", "", "text/plain", format!("{} {}\n", self.cfg.dump, ok).as_bytes()) }
                (_, "/ctl") => { let mut rs = false; for kv in q.split('&') { if let Some((k, v)) = kv.split_once('=') { let f = v.parse::<f64>().unwrap_or(0.0); match k { "ttft" => self.cfg.ttft = (f * 1e6) as u64, "itl" => self.cfg.itl = (f * 1e6) as u64, "tokens" => self.cfg.tokens = f as u32, "cap" => self.cfg.cap = f as u32, "mode" => self.cfg.mode = v.to_string(), "batch" => self.cfg.batch = f as u32, "tpc" => self.cfg.tpc = f as u32, "every" => self.cfg.every = f as u64, "full" => self.cfg.full = f > 0.0, "dump" => self.cfg.dump = v.to_string(), "model" => self.cfg.model = v.to_string(), "reset" => rs = f > 0.0, _ => {} } } }
                    if rs { self.reset() } let s = format!("{:?}\n", self.cfg); self.respond(idx, "200 OK", "", "text/plain", s.as_bytes()) }
                _ => self.respond(idx, "404 Not Found", "", "application/json", b"{\"detail\":\"Not Found\"}"),
            }
        }
    }
}
fn main() {
    let mut cfg = Cfg { ttft: 50_000_000, itl: 10_000_000, tokens: 64, cap: 0, mode: "normal".into(), batch: 1, tpc: 1, every: 1, full: false, model: "mock".into(), dump: "server_dump.jsonl".into(), port: 9100 };
    let a: Vec<String> = std::env::args().collect(); let mut i = 1;
    while i + 1 < a.len() { let v = &a[i + 1]; let f = v.parse::<f64>().unwrap_or(0.0); match a[i].as_str() { "--port" => cfg.port = f as u16, "--ttft" => cfg.ttft = (f * 1e6) as u64, "--itl" => cfg.itl = (f * 1e6) as u64, "--tokens" => cfg.tokens = f as u32, "--cap" => cfg.cap = f as u32, "--mode" => cfg.mode = v.clone(), "--batch" => cfg.batch = f as u32, "--tpc" => cfg.tpc = f as u32, "--every" => cfg.every = f as u64, "--model" => cfg.model = v.clone(), "--dump" => cfg.dump = v.clone(), "--full" => cfg.full = f > 0.0, x => { eprintln!("unknown {}", x); std::process::exit(2) } } i += 2 }
    unsafe { prctl(29, 1, 0, 0, 0) };
    let ls = unsafe { socket(2, 1 | 0o4000, 0) }; let one = 1i32;
    unsafe { setsockopt(ls, 1, 2, &one, 4) };
    let ad = SockAddrIn { family: 2, port: cfg.port.to_be(), addr: u32::from_ne_bytes([127, 0, 0, 1]), zero: [0; 8] };
    if unsafe { bind(ls, &ad, 16) } != 0 { eprintln!("bind failed"); std::process::exit(1) }
    unsafe { listen(ls, 8192) };
    let ep = unsafe { epoll_create1(0) };
    let mut e = EpollEvent { events: EPOLLIN, data: u64::MAX }; unsafe { epoll_ctl(ep, 1, ls, &mut e) };
    let mut s = Srv { ep, conns: vec![], free: vec![], gens: vec![], heap: BinaryHeap::new(), ready: VecDeque::new(), cfg, h_ttft: Hist::new(), h_itl: Hist::new(), h_late: Hist::new(), recs: vec![], next_id: 0, started: 0, done: 0, aborted: 0, errs: 0, tokens: 0, events: 0, bytes: 0, blocked: 0, accepts: 0, cur: 0, peak: 0, integ: 0.0, last_c: 0, t_firstreq: 0, t_lastdone: 0, cpu0: cpu_s(), scratch: vec![], seq: 0 };
    eprintln!("mock on 127.0.0.1:{} {:?}", s.cfg.port, s.cfg);
    let mut evs = [EpollEvent { events: 0, data: 0 }; 512]; let mut tmp = vec![0u8; 65536];
    loop {
        let ts = if !s.ready.is_empty() { Timespec { sec: 0, nsec: 0 } } else if let Some(Reverse((d, _, _))) = s.heap.peek() { let w = d.saturating_sub(now()); Timespec { sec: (w / 1_000_000_000) as i64, nsec: (w % 1_000_000_000) as i64 } } else { Timespec { sec: 5, nsec: 0 } };
        let n = unsafe { epoll_pwait2(ep, evs.as_mut_ptr(), 512, &ts, std::ptr::null()) };
        for j in 0..n.max(0) as usize {
            let (ev, data) = (evs[j].events, evs[j].data);
            if data == u64::MAX {
                for _ in 0..256 { let fd = unsafe { accept4(ls, std::ptr::null_mut(), std::ptr::null_mut(), 0o4000) }; if fd < 0 { break }
                    unsafe { setsockopt(fd, 6, 1, &one, 4) }; s.accepts += 1;
                    let idx = s.free.pop().unwrap_or_else(|| { s.conns.push(None); s.gens.push(0); s.conns.len() - 1 }); let gen = s.gens[idx];
                    s.conns[idx] = Some(Box::new(Conn { fd, gen, rbuf: vec![], wbuf: vec![], wpos: 0, want_w: false, active: false, id: 0, n: 0, sent: 0, t_recv: 0, t_arr: 0, base: 0, last: 0, t_first: 0, chat: true, usage: false, pt: 0, pre: vec![], suf: vec![], head: false, script: None, si: 0, times: vec![], one_shot: false, keep: true, xid: String::new(), dead: false }));
                    let mut e = EpollEvent { events: EPOLLIN | EPOLLRDHUP, data: (idx as u64) | ((gen as u64) << 32) }; unsafe { epoll_ctl(ep, 1, fd, &mut e) }; }
                continue;
            }
            let idx = (data & 0xffff_ffff) as usize; let gen = (data >> 32) as u32;
            match s.conns[idx].as_ref() { Some(c) if c.gen == gen => {} _ => continue }
            if ev & EPOLLOUT != 0 { let was = s.conns[idx].as_ref().unwrap().want_w; if !s.flush(idx) { continue } let c = s.conns[idx].as_ref().unwrap(); if was && !c.want_w && c.active && c.script.is_none() && s.cfg.ttft + s.cfg.itl == 0 { s.ready.push_back((idx, gen)) } }
            if ev & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP) != 0 {
                let mut dead = false; let mut got = false;
                loop { let c = s.conns[idx].as_mut().unwrap(); let r = unsafe { read(c.fd, tmp.as_mut_ptr(), tmp.len()) };
                    if r > 0 { c.rbuf.extend_from_slice(&tmp[..r as usize]); got = true; if (r as usize) < tmp.len() { break } } else if r == 0 { dead = true; break } else { let e = unsafe { *__errno_location() }; if e == 4 { continue } if e != 11 { dead = true } break } }
                if got { let t = now(); s.parse(idx, t) }
                if dead && s.conns[idx].as_ref().map_or(false, |c| c.gen == gen) { s.kill(idx, false) }
            }
        }
        let t = now(); let mut k = 0;
        while let Some(Reverse((d, _, _))) = s.heap.peek() { if *d > t || k >= 4096 { break } let Reverse((d, idx, gen)) = s.heap.pop().unwrap(); s.step(idx, gen, d); k += 1 }
        let rounds = s.ready.len().max(64).min(512);
        for _ in 0..rounds { match s.ready.pop_front() { Some((idx, gen)) => s.step(idx, gen, 0), None => break } }
    }
}
