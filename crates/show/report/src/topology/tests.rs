//! Every view of real trees.

use std::process::Command;

use insta::assert_snapshot;
use ncpu_machine::Topology;
use ncpu_machine_trees as trees;
use ncpu_machine_trees::generate::{Shape, write};
use ncpu_table::render_text;

use super::*;

fn read(name: &str) -> Topology {
    let dir = tempfile::tempdir().unwrap();
    let root = trees::tree(name, dir.path());
    Topology::read(&root).unwrap()
}

#[test]
fn tree_of_a_small_machine() {
    let t = read("2i386-2c-nohugepage");
    assert_snapshot!(tree(&t, 80), @r"
    1 package, 2 cores, 2 CPUs, 1 NUMA node, 2.0G memory
    Intel(R) Xeon(R) CPU 5130 @ 2.00GHz (1995 MHz)

    Package 0 + Node 0 2.0G (1.7G free) + L2 4M  CPUs 0-1
      2 x L1d 32K + L1i 32K + Core
    ");
}

#[test]
fn tree_of_offline_cpus() {
    let t = read("16em64t-4s2c2t-offlines");
    assert_snapshot!(tree(&t, 80), @r"
    4 packages, 7 cores, 12 CPUs, 1 NUMA node, 16G memory
    Intel(R) Xeon(TM) CPU 2.60GHz (2593 MHz)
    offline: CPUs 2,5,13-14

    Node 0 16G (12G free)  CPUs 0-1,3-4,6-12,15
      Package 0 + L3 4M  CPUs 0,4,8,12
        2 x L2 1M + L1d 16K + Core of 2 CPUs  CPUs 0,8 4,12
      Package 1 + L3 4M + L2 1M + L1d 16K + Core of 2 CPUs  CPUs 1,9
      Package 3 + L3 4M  CPUs 3,7,11,15
        2 x L2 1M + L1d 16K + Core of 2 CPUs  CPUs 3,11 7,15
      Package 2 + L3 4M  CPUs 6,10
        2 x L2 1M + L1d 16K + Core
    ");
}

#[test]
fn tree_of_a_cpuset() {
    let t = read("16amd64-8n2c-cpusets");
    assert_snapshot!(tree(&t, 80), @r"
    8 packages, 15 cores, 15 CPUs, 8 NUMA nodes, 64G memory
    Dual Core AMD Opteron(tm) Processor 865 (1808 MHz)
    offline: CPUs 4
    allowed: CPUs 0-3,5-6,12-15
    allowed: memory of nodes 1-4

    Package 0 + Node 0 8.0G (6.6G free), memory not allowed  CPUs 0-1
      2 x L2 1M + L1d 64K + L1i 64K + Core
    Package 1 + Node 1 8G (7.8G free)  CPUs 2-3
      2 x L2 1M + L1d 64K + L1i 64K + Core
    Package 2 + Node 2 8G (7.9G free) + L2 1M + L1d 64K + L1i 64K + Core  CPU 5
    Package 3 + Node 3 8G (7.8G free)  CPUs 6-7
      L2 1M + L1d 64K + L1i 64K + Core  CPU 6
      L2 1M + L1d 64K + L1i 64K + Core (not allowed)  CPU 7
    Package 4 + Node 4 8G (7.9G free)  CPUs 8-9
      2 x L2 1M + L1d 64K + L1i 64K + Core (not allowed)
    Package 5 + Node 5 8G (7.9G free), memory not allowed  CPUs 10-11
      2 x L2 1M + L1d 64K + L1i 64K + Core (not allowed)
    Package 6 + Node 6 8G (7.9G free), memory not allowed  CPUs 12-13
      2 x L2 1M + L1d 64K + L1i 64K + Core
    Package 7 + Node 7 8G (7.9G free), memory not allowed  CPUs 14-15
      2 x L2 1M + L1d 64K + L1i 64K + Core

    Distance between nodes 20, within 10
    ");
    assert_snapshot!(tree(&t.allowed_only(), 80), @r"
    7 packages, 10 cores, 10 CPUs, 4 NUMA nodes, 32G memory
    Dual Core AMD Opteron(tm) Processor 865 (1808 MHz)
    offline: CPUs 4

    Package 0  CPUs 0-1
      2 x L2 1M + L1d 64K + L1i 64K + Core
    Package 1 + Node 1 8G (7.8G free)  CPUs 2-3
      2 x L2 1M + L1d 64K + L1i 64K + Core
    Package 2 + Node 2 8G (7.9G free) + L2 1M + L1d 64K + L1i 64K + Core  CPU 5
    Package 3 + Node 3 8G (7.8G free) + L2 1M + L1d 64K + L1i 64K + Core  CPU 6
    Package 6  CPUs 12-13
      2 x L2 1M + L1d 64K + L1i 64K + Core
    Package 7  CPUs 14-15
      2 x L2 1M + L1d 64K + L1i 64K + Core
    Package 4
    Node 4 8G (7.9G free), memory only

    Distance between nodes 20, within 10
    ");
}

#[test]
fn tree_of_a_hybrid() {
    let t = read("20em64t-hybrid-1p6c2t+2ca4co1t");
    assert_snapshot!(tree(&t, 80), @r"
    1 package, 14 cores, 20 CPUs, 1 NUMA node, 31G memory
    13th Gen Intel(R) Core(TM) i7-1370P (1900 MHz)
    1400 MHz: CPUs 12-19
    1900 MHz: CPUs 0-11

    Package 0 + Node 0 31G (27G free) + L3 24M  CPUs 0-19
      6 x L2 1.2M + L1d 48K + L1i 32K + Core (1900 MHz) of 2 CPUs  CPUs 0-11
      2 x Cluster + L2 2M  CPUs 12-19
        4 x L1d 32K + L1i 64K + Core (1400 MHz)
    ");
    assert_snapshot!(tree(&t, 200), @r"
    1 package, 14 cores, 20 CPUs, 1 NUMA node, 31G memory
    13th Gen Intel(R) Core(TM) i7-1370P (1900 MHz)
    1400 MHz: CPUs 12-19
    1900 MHz: CPUs 0-11

    Package 0 + Node 0 31G (27G free) + L3 24M  CPUs 0-19
      6 x L2 1.2M + L1d 48K + L1i 32K + Core (1900 MHz) of 2 CPUs  CPUs 0-1 2-3 4-5 6-7 8-9 10-11
      2 x Cluster + L2 2M  CPUs 12-19
        4 x L1d 32K + L1i 64K + Core (1400 MHz)
    ");
}

#[test]
fn tree_of_clusters() {
    let t = read("128arm-2pa2n8cluster4co");
    assert_snapshot!(tree(&t, 80), @r"
    2 packages, 128 cores, 128 CPUs, 4 NUMA nodes, 503G memory
    TaiShan v110

    Package 36  CPUs 0-63
      Node 0 126G (124G free) + L3 32M  CPUs 0-31
        8 x Cluster
          4 x L2 512K + L1d 64K + L1i 64K + Core
      Node 1 126G (126G free) + L3 32M  CPUs 32-63
        8 x Cluster
          4 x L2 512K + L1d 64K + L1i 64K + Core
    Package 8442  CPUs 64-127
      Node 2 126G (74G free) + L3 32M  CPUs 64-95
        8 x Cluster
          4 x L2 512K + L1d 64K + L1i 64K + Core
      Node 3 125G (120G free) + L3 32M  CPUs 96-127
        8 x Cluster
          4 x L2 512K + L1d 64K + L1i 64K + Core

    Distance between nodes 16 to 33, within 10
    ");
}

#[test]
fn tree_of_books() {
    let t = read("20s390-2g6s4c");
    assert_snapshot!(tree(&t, 80), @r"
    8 packages, 20 cores, 20 CPUs, 1 NUMA node, 2.0G memory
    IBM/S390 machine 2817

    Node 0 2.0G (1.8G free)  CPUs 0-19
      Drawer 4  CPUs 0-12
        Book 0  CPUs 0-2,10-12
          Package: 3 x Core  CPUs 0-2
          Package: 3 x Core  CPUs 10-12
        Book 1  CPUs 3-9
          Package: 4 x Core  CPUs 3-6
          Package: 3 x Core  CPUs 7-9
      Drawer 3  CPUs 13-19
        Book 7  CPUs 13-15
          Package: 2 x Core  CPUs 13-14
          Package + Core  CPU 15
        Book 8  CPUs 16-19
          Package + Core  CPU 16
          Package: 3 x Core  CPUs 17-19
    ");
}

#[test]
fn a_large_tree_fits_80_columns() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &Shape { nodes: 4, cores: 32, threads: 2 }).unwrap();
    let t = Topology::read(dir.path()).unwrap();
    assert_snapshot!(tree(&t, 80), @r"
    4 packages, 128 cores, 256 CPUs, 4 NUMA nodes, 256G memory
    Generated CPU @ 2.40GHz (2400 MHz)

    Package 0 + Node 0 64G (32G free) + L3 48M  CPUs 0-31,128-159
      32 x L2 1M + L1d 32K + L1i 32K + Core of 2 CPUs
    Package 1 + Node 1 64G (32G free) + L3 48M  CPUs 32-63,160-191
      32 x L2 1M + L1d 32K + L1i 32K + Core of 2 CPUs
    Package 2 + Node 2 64G (32G free) + L3 48M  CPUs 64-95,192-223
      32 x L2 1M + L1d 32K + L1i 32K + Core of 2 CPUs
    Package 3 + Node 3 64G (32G free) + L3 48M  CPUs 96-127,224-255
      32 x L2 1M + L1d 32K + L1i 32K + Core of 2 CPUs

    Distance between nodes 21, within 10
    ");
    for machine in trees::machines() {
        let dir = tempfile::tempdir().unwrap();
        let root = trees::unpack(&machine, dir.path());
        let text = tree(&Topology::read(&root).unwrap(), 80);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{}\n{text}", machine.display());
    }
}

#[test]
fn psrinfo_layout() {
    let t = read("16em64t-4s2c2t");
    assert_snapshot!(psrinfo(&t), @r"
    The physical processor has 2 cores and 4 virtual processors (0 4 8 12)
      The core has 2 virtual processors (0 8)
      The core has 2 virtual processors (4 12)
        Intel(R) Xeon(TM) CPU 2.60GHz (clock 2593 MHz)

    The physical processor has 2 cores and 4 virtual processors (1 5 9 13)
      The core has 2 virtual processors (1 9)
      The core has 2 virtual processors (5 13)
        Intel(R) Xeon(TM) CPU 2.60GHz (clock 2593 MHz)

    The physical processor has 2 cores and 4 virtual processors (2 6 10 14)
      The core has 2 virtual processors (2 10)
      The core has 2 virtual processors (6 14)
        Intel(R) Xeon(TM) CPU 2.60GHz (clock 2593 MHz)

    The physical processor has 2 cores and 4 virtual processors (3 7 11 15)
      The core has 2 virtual processors (3 11)
      The core has 2 virtual processors (7 15)
        Intel(R) Xeon(TM) CPU 2.60GHz (clock 2593 MHz)
    ");
    let t = read("16amd64-8n2c-cpusets");
    assert_snapshot!(psrinfo(&t.allowed_only()), @r"
    The physical processor has 2 virtual processors (0 1)
      Dual Core AMD Opteron(tm) Processor 865 (clock 1808 MHz)

    The physical processor has 2 virtual processors (2 3)
      Dual Core AMD Opteron(tm) Processor 865 (clock 1808 MHz)

    The physical processor has 1 virtual processor (5)
      Dual Core AMD Opteron(tm) Processor 865 (clock 1808 MHz)

    The physical processor has 1 virtual processor (6)
      Dual Core AMD Opteron(tm) Processor 865 (clock 1808 MHz)

    The physical processor has 2 virtual processors (12 13)
      Dual Core AMD Opteron(tm) Processor 865 (clock 1808 MHz)

    The physical processor has 2 virtual processors (14 15)
      Dual Core AMD Opteron(tm) Processor 865 (clock 1808 MHz)
    ");
}

/// The blog's T5440: 4 packages of 8 cores of 8 strands, numbered core by core.
#[test]
fn psrinfo_of_the_blog() {
    let dir = tempfile::tempdir().unwrap();
    let cpu = dir.path().join("sys/devices/system/cpu");
    for n in 0..256u32 {
        let own = cpu.join(format!("cpu{n}/topology"));
        let run = |size: u32| (n / size * size..(n / size + 1) * size).collect::<ncpu_machine::CpuSet>();
        trees::put(&own, "core_cpus", &run(8).to_mask());
        trees::put(&own, "package_cpus", &run(64).to_mask());
    }
    trees::put(dir.path(), "proc/cpuinfo", "cpu\t\t: UltraSPARC-T2+\nclock\t\t: 1414MHz\n");
    let text = psrinfo(&Topology::read(dir.path()).unwrap());
    assert!(text.starts_with(
        "The physical processor has 8 cores and 64 virtual processors (0-63)\n  \
           The core has 8 virtual processors (0-7)\n  \
           The core has 8 virtual processors (8-15)\n"
    ));
    assert!(text.contains(
        "  The core has 8 virtual processors (56-63)\n    UltraSPARC-T2+ (clock 1414 MHz)\n\n\
         The physical processor has 8 cores and 64 virtual processors (64-127)\n"
    ));
}

#[test]
fn lgrp_layout() {
    let t = read("32amd64-4s2n4c-cgroup2").allowed_only();
    assert_snapshot!(lgrp(&t), @r"
    lgroup 0 (root):
            Children: 1-6
            CPUs: 0-5
            Memory: installed 96G, allocated 4.9G, free 91G
    lgroup 1 (leaf):
            Children: none, Parent: 0
            CPUs: 0-3
            Memory: installed 16G, allocated 1.3G, free 15G
    lgroup 2 (leaf):
            Children: none, Parent: 0
            CPUs: 4 5
            Memory: installed 16G, allocated 712M, free 15G
    lgroup 3 (leaf):
            Children: none, Parent: 0
            CPUs: none
            Memory: installed 16G, allocated 711M, free 15G
    lgroup 4 (leaf):
            Children: none, Parent: 0
            CPUs: none
            Memory: installed 16G, allocated 732M, free 15G
    lgroup 5 (leaf):
            Children: none, Parent: 0
            CPUs: none
            Memory: installed 16G, allocated 838M, free 15G
    lgroup 6 (leaf):
            Children: none, Parent: 0
            CPUs: none
            Memory: installed 16G, allocated 664M, free 15G
    ");
    let t = read("2i386-2c-nohugepage");
    assert_snapshot!(lgrp(&t), @r"
    lgroup 0 (root):
            Children: none
            CPUs: 0 1
            Memory: installed 2.0G, allocated 297M, free 1.7G
    ");
}

#[test]
fn showcores_layout() {
    let t = read("16em64t-4s2c2t-offlines");
    assert_snapshot!(showcores(&t), @r"
    CPU core
      0   0
      1   1
      3   3
      4   4
      6   6
      7   7
      8   0
      9   1
     10  10
     11   3
     12   4
     15   7
    ");
    let t = read("2i386-2c-nohugepage");
    assert_snapshot!(showcores(&t), @r"
    CPU core
      0   0
      1   1
    ");
}

#[test]
fn numactl_layout() {
    let t = read("128arm-2pa2n8cluster4co");
    assert_snapshot!(numactl(&t), @r"
    available: 4 nodes (0-3)
    node 0 cpus: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    node 0 size: 128645 MB
    node 0 free: 127116 MB
    node 1 cpus: 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    node 1 size: 129021 MB
    node 1 free: 128793 MB
    node 2 cpus: 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
    node 2 size: 129021 MB
    node 2 free: 75616 MB
    node 3 cpus: 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127
    node 3 size: 127990 MB
    node 3 free: 122894 MB
    node distances:
    node   0   1   2   3 
      0:  10  16  32  33 
      1:  16  10  25  32 
      2:  32  25  10  16 
      3:  33  32  16  10
    ");
    let t = read("64fake-4n2s2ca2c2t");
    assert_snapshot!(numactl(&t), @r"
    available: 4 nodes (0-3)
    node 0 cpus: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
    node 0 size: 1024 MB
    node 0 free: <not available>
    node 1 cpus: 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    node 1 size: 1024 MB
    node 1 free: <not available>
    node 2 cpus: 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
    node 2 size: 1024 MB
    node 2 free: <not available>
    node 3 cpus: 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    node 3 size: 1024 MB
    node 3 free: <not available>
    No distance information available.
    ");
}

#[test]
fn numactl_itself_says_the_same() {
    let Ok(out) = Command::new("numactl").arg("--hardware").output() else {
        println!("skipped: numactl is not installed");
        return;
    };
    let theirs = String::from_utf8_lossy(&out.stdout).into_owned();
    let ours = numactl(&Topology::read("/".as_ref()).unwrap());
    // Sizes change between the two readings: free always, a virtual machine's memory too.
    let steady = |text: &str| {
        let sizes = |l: &&str| !l.contains(" free: ") && !l.contains(" size: ");
        text.lines().filter(sizes).map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(steady(&ours), steady(&theirs));
    assert_eq!(ours.lines().count(), theirs.lines().count());
}

#[test]
fn tables() {
    let t = read("16em64t-4s2c2t-offlines");
    assert_snapshot!(render_text(&cpus(&t), 120), @r"
    cpu  state    allowed  core  core_id  thread  package  die  cluster  node  kind   MHz
      0  online   yes         0        0       0        0    -        -     0  -     2593
      1  online   yes         1        0       0        1    -        -     0  -     2593
      2  offline  no          -        -       -        -    -        -     -  -        -
      3  online   yes         3        0       0        3    -        -     0  -     2593
      4  online   yes         4        1       0        0    -        -     0  -     2593
      5  offline  no          -        -       -        -    -        -     -  -        -
      6  online   yes         6        1       0        2    -        -     0  -     2593
      7  online   yes         7        1       0        3    -        -     0  -     2593
      8  online   yes         0        0       1        0    -        -     0  -     2593
      9  online   yes         1        0       1        1    -        -     0  -     2593
     10  online   yes        10        0       0        2    -        -     0  -     2593
     11  online   yes         3        0       1        3    -        -     0  -     2593
     12  online   yes         4        1       1        0    -        -     0  -     2593
     13  offline  no          -        -       -        -    -        -     -  -        -
     14  offline  no          -        -       -        -    -        -     -  -        -
     15  online   yes         7        1       1        3    -        -     0  -     2593
    ");
    assert_snapshot!(render_text(&cores(&t), 120), @r"
    core  core_id  package  node  kind  threads  cpus   MHz
       0        0        0     0  -           2  0,8   2593
       1        0        1     0  -           2  1,9   2593
       3        0        3     0  -           2  3,11  2593
       4        1        0     0  -           2  4,12  2593
       6        1        2     0  -           1  6     2593
       7        1        3     0  -           2  7,15  2593
      10        0        2     0  -           1  10    2593
    ");
    let t = read("20em64t-hybrid-1p6c2t+2ca4co1t");
    assert_snapshot!(render_text(&cores(&t), 120), @r"
    core  core_id  package  node  kind      threads  cpus    MHz
       0        0        0     0  1900 MHz        2  0-1    1900
       2        4        0     0  1900 MHz        2  2-3    1900
       4        8        0     0  1900 MHz        2  4-5    1900
       6       12        0     0  1900 MHz        2  6-7    1900
       8       16        0     0  1900 MHz        2  8-9    1900
      10       20        0     0  1900 MHz        2  10-11  1900
      12       24        0     0  1400 MHz        1  12     1400
      13       25        0     0  1400 MHz        1  13     1400
      14       26        0     0  1400 MHz        1  14     1400
      15       27        0     0  1400 MHz        1  15     1400
      16       28        0     0  1400 MHz        1  16     1400
      17       29        0     0  1400 MHz        1  17     1400
      18       30        0     0  1400 MHz        1  18     1400
      19       31        0     0  1400 MHz        1  19     1400
    ");
    assert_snapshot!(render_text(&caches(&t), 120), @r"
    cache  level  type         size B  line B  ways  ncpu  cpus
    L1d        1  Data            48K     64B    12     2  0-1
    L1i        1  Instruction     32K     64B     8     2  0-1
    L2         2  Unified        1.2M     64B    10     2  0-1
    L3         3  Unified         24M     64B    12    20  0-19
    L1d        1  Data            48K     64B    12     2  2-3
    L1i        1  Instruction     32K     64B     8     2  2-3
    L2         2  Unified        1.2M     64B    10     2  2-3
    L1d        1  Data            48K     64B    12     2  4-5
    L1i        1  Instruction     32K     64B     8     2  4-5
    L2         2  Unified        1.2M     64B    10     2  4-5
    L1d        1  Data            48K     64B    12     2  6-7
    L1i        1  Instruction     32K     64B     8     2  6-7
    L2         2  Unified        1.2M     64B    10     2  6-7
    L1d        1  Data            48K     64B    12     2  8-9
    L1i        1  Instruction     32K     64B     8     2  8-9
    L2         2  Unified        1.2M     64B    10     2  8-9
    L1d        1  Data            48K     64B    12     2  10-11
    L1i        1  Instruction     32K     64B     8     2  10-11
    L2         2  Unified        1.2M     64B    10     2  10-11
    L1d        1  Data            32K     64B     8     1  12
    L1i        1  Instruction     64K     64B     8     1  12
    L2         2  Unified          2M     64B    16     4  12-15
    L1d        1  Data            32K     64B     8     1  13
    L1i        1  Instruction     64K     64B     8     1  13
    L1d        1  Data            32K     64B     8     1  14
    L1i        1  Instruction     64K     64B     8     1  14
    L1d        1  Data            32K     64B     8     1  15
    L1i        1  Instruction     64K     64B     8     1  15
    L1d        1  Data            32K     64B     8     1  16
    L1i        1  Instruction     64K     64B     8     1  16
    L2         2  Unified          2M     64B    16     4  16-19
    L1d        1  Data            32K     64B     8     1  17
    L1i        1  Instruction     64K     64B     8     1  17
    L1d        1  Data            32K     64B     8     1  18
    L1i        1  Instruction     64K     64B     8     1  18
    L1d        1  Data            32K     64B     8     1  19
    L1i        1  Instruction     64K     64B     8     1  19
    ");
    let t = read("16amd64-8n2c-cpusets");
    assert_snapshot!(render_text(&nodes(&t), 120), @r"
    node  allowed  ncpu  total B  free B  hugepages  side_cache B  cpus   local_cpus  device
       0  no          2     8.0G    6.6G                        -  0-1    0-1         -
       1  yes         2       8G    7.8G                        -  2-3    2-3         -
       2  yes         1       8G    7.9G                        -  5      5           -
       3  yes         2       8G    7.8G                        -  6-7    6-7         -
       4  yes         2       8G    7.9G                        -  8-9    8-9         -
       5  no          2       8G    7.9G                        -  10-11  10-11       -
       6  no          2       8G    7.9G                        -  12-13  12-13       -
       7  no          2       8G    7.9G                        -  14-15  14-15       -
    ");
    assert_eq!(distances(&t).num_rows(), 64);
    let t = read("2i386-2c-nohugepage");
    assert_snapshot!(render_text(&objects(&t), 120), @r"
    type     id  ncpu  cpus  allowed  size B  line B  name
    machine   -     2  0-1   0-1        2.0G       -  -
    node      0     2  0-1   0-1        2.0G       -  -
    package   0     2  0-1   0-1           -       -  Intel(R) Xeon(R) CPU 5130 @ 2.00GHz
    L2        -     2  0-1   0-1          4M     64B  -
    L1d       -     1  0     0           32K     64B  -
    L1d       -     1  1     1           32K     64B  -
    L1i       -     1  0     0           32K     64B  -
    L1i       -     1  1     1           32K     64B  -
    core      0     1  0     0             -       -  -
    core      1     1  1     1             -       -  -
    cpu       0     1  0     0             -       -  -
    cpu       1     1  1     1             -       -  -
    ");
    assert_snapshot!(render_text(&cpus(&t), 120), @r"
    cpu  state   allowed  core  core_id  thread  package  die  cluster  node  kind   MHz
      0  online  yes         0        0       0        0    -        -     0  -     1995
      1  online  yes         1        1       0        0    -        -     0  -     1995
    ");
}
