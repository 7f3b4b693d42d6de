import { expect, it } from 'vitest'
import { usableCores } from '../../../src/process/workers/pool.ts'

const on = (files: Readonly<Record<string, string>>, affinity = 8): number =>
  usableCores((path) => files[path], affinity)

it.each([
  ['no cgroups', {}, 8],
  [
    'version 2 without a limit',
    { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/cpu.max': 'max 100000\n' },
    8,
  ],
  ['a container', { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/cpu.max': '350000 100000\n' }, 3],
  ['less than one core', { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/cpu.max': '50000 100000\n' }, 1],
  [
    'more cores than the machine has',
    { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/cpu.max': '9900000 100000\n' },
    8,
  ],
  [
    'a limited parent slice',
    {
      '/proc/self/cgroup': '0::/api.slice/sluice.service\n',
      '/sys/fs/cgroup/api.slice/sluice.service/cpu.max': 'max 100000\n',
      '/sys/fs/cgroup/api.slice/cpu.max': '200000 100000\n',
    },
    2,
  ],
  [
    'a path outside of the container',
    { '/proc/self/cgroup': '0::/../../kubepods/pod1\n', '/sys/fs/cgroup/cpu.max': '200000 100000\n' },
    2,
  ],
  [
    'version 1',
    {
      '/proc/self/cgroup': '5:memory:/docker/a:b\n4:cpu,cpuacct:/docker/a:b\n',
      '/sys/fs/cgroup/cpu/docker/a:b/cpu.cfs_quota_us': '250000\n',
      '/sys/fs/cgroup/cpu/docker/a:b/cpu.cfs_period_us': '100000\n',
      '/sys/fs/cgroup/cpu/cpu.cfs_quota_us': '-1\n',
      '/sys/fs/cgroup/cpu/cpu.cfs_period_us': '100000\n',
    },
    2,
  ],
])('with %s', (_, files, cores) => {
  expect(on(files)).toBe(cores)
})

it('returns at least 1 on this machine', () => {
  expect(usableCores()).toBeGreaterThanOrEqual(1)
})
