// Published figures that the runs here are printed beside, each with where it stands.
#pragma once

namespace tranche::bench {

// EASY on KTH-SP2, mean bounded slow-down with a bound of 10 s, 28,481 jobs: 92.6 in Gaussier et al.
// (SC'15), 92.8 in a replay of the same log with all usable records. With shortest-first backfill and the
// mean of the user's last two run times 68.3, the figure to reach without exact run times.
inline constexpr double kPublishedEasy = 92.8;
inline constexpr double kPublishedShortestFirstLastTwo = 68.3;
inline constexpr int kKthProcessors = 100;
inline constexpr int kKthJobs = 28'481;

// Muri's cluster, n8g8.csv.
inline constexpr int kMuriNodes = 8;
inline constexpr int kMuriGpusPerNode = 8;

}  // namespace tranche::bench
