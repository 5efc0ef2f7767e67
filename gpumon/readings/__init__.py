"""The types that the packages exchange: `Frame` as it was read, `Snapshot` as it is shown, `Verdict`, `Missing`.

Also what is said of them in one way everywhere: number formats, words, exported names, what text from outside may hold.
Pure data and small functions, on which everything but `specs` stands.
"""
