"""The past: frames in memory and in files, and the way back to any moment of them.

Frames come in and go out as they were; a moment is derived anew from the minutes before it. Nothing is asked of a host.
"""
