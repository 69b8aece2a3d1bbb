"""Who is on the scoreboard: a file for each, which holds a subject and runs where its peer does.

No file is called after the package that it imports: the folder comes first where modules are
looked for.
"""
