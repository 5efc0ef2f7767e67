"""The user's settings: the schema and its checks, keys, themes, profiles, prices, and the files that they come from.

Files, the environment and command lines come in; typed values go out, or every fault at once with its line and the
nearest name. Whoever needs a setting is given it: nothing below reads the config by itself.
"""
